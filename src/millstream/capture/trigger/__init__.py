"""Capture by triggers.

layout      which triggers a source needs, and on which of its partitions
function    the text of the functions that they call
triggers    set capture up, extend it, remove it
inventory   compare the triggers that exist with those that should
"""
