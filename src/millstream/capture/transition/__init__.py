"""Move a source between trigger capture and WAL capture, exactly once.

transitions   the next step of every source, one tick at a time: may it move, must it return?
cutover       the steps themselves; each is one transaction
context       what a transition needs of the application
"""
