"""The errors that Millstream raises on purpose, one class per kind.

An error says what happened (message), why (detail) and what to do next (hint). Its code is
stable; its facts are attributes. The class decides whether trying again can help.

MS0xx  the environment: server, Java, settings, privileges
    MS1xx  the query: not supported, or invalid
    MS2xx  a stream table: its name, its state
    MS3xx  capture
    MS4xx  refresh
    MS5xx  a request to the service
    MS9xx  a bug in Millstream: please report it
"""

from millstream.errors.base import MillstreamError, of_code, typed
from millstream.errors.capture import (
    LockNotHad,
    SlotLost,
    SourceChanged,
    SpillFailed,
    WalBehind,
    WalBroken,
    WalNotUnderstood,
    WalTakenOver,
)
from millstream.errors.defect import (
    InternalError,
    PlanningFailed,
    TargetDiffers,
)
from millstream.errors.query import (
    BadQuery,
    BadSource,
    Cycle,
    QueryError,
    QueryTooDeep,
    Unsupported,
    Volatile,
)
from millstream.errors.refresh import (
    Busy,
    Cancelled,
    Conflict,
    Deposed,
    LockTableFull,
    ProcessEnded,
    RecursionTooDeep,
    RefreshFailed,
    ServerTrouble,
    ValueOutOfRange,
)
from millstream.errors.requests import (
    NoSuchRequest,
    NotVisibleYet,
    RequestInterrupted,
    RequestNotDone,
    TooManyRequests,
)
from millstream.errors.stream_table import (
    NameTaken,
    NoSuchStreamTable,
    NotAdopted,
    NotFilled,
    StillUsed,
    TargetAltered,
    TargetMoved,
    TriggerInterferes,
)
from millstream.errors.surroundings import (
    BadSetting,
    Closed,
    ForeignCode,
    JavaEnded,
    JavaMissing,
    NoRights,
    NotInstalled,
    NotYet,
    OtherDatabase,
    OwnerLacksRight,
    ServerDown,
    ServerError,
    UntrustedCatalog,
    WrongVersion,
)

__all__ = [
    "BadQuery",
    "BadSetting",
    "BadSource",
    "Busy",
    "Cancelled",
    "Closed",
    "Conflict",
    "Cycle",
    "Deposed",
    "ForeignCode",
    "InternalError",
    "JavaEnded",
    "JavaMissing",
    "LockNotHad",
    "LockTableFull",
    "MillstreamError",
    "NameTaken",
    "NoRights",
    "NoSuchRequest",
    "NoSuchStreamTable",
    "NotAdopted",
    "NotFilled",
    "NotInstalled",
    "NotVisibleYet",
    "NotYet",
    "OtherDatabase",
    "OwnerLacksRight",
    "PlanningFailed",
    "ProcessEnded",
    "QueryError",
    "QueryTooDeep",
    "RecursionTooDeep",
    "RefreshFailed",
    "RequestInterrupted",
    "RequestNotDone",
    "ServerDown",
    "ServerError",
    "ServerTrouble",
    "SlotLost",
    "SourceChanged",
    "SpillFailed",
    "StillUsed",
    "TargetAltered",
    "TargetDiffers",
    "TargetMoved",
    "TooManyRequests",
    "TriggerInterferes",
    "Unsupported",
    "UntrustedCatalog",
    "ValueOutOfRange",
    "Volatile",
    "WalBehind",
    "WalBroken",
    "WalNotUnderstood",
    "WalTakenOver",
    "WrongVersion",
    "of_code",
    "typed",
]
