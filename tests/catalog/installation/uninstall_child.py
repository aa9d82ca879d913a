"""A process to be killed: uninstalls.

    python uninstall_child.py DSN

MILLSTREAM_FAILPOINT says where it shall die.
"""

from __future__ import annotations

import sys

from millstream.catalog.installation import install
from millstream.postgres.connection import connect

if __name__ == "__main__":
    with connect(sys.argv[1]) as conn:
        install.uninstall(conn)
