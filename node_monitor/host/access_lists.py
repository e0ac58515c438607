"""Access lists of files and directories (acl(5)): which accounts may reach what is ours, besides us.

An account is named, not a group: accounts may have groups in common. The kernel takes a list as an extended attribute;
its form is that of `linux/posix_acl_xattr.h`.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable

ATTRIBUTE = "system.posix_acl_access"
READ, ENTER = 4, 1
"""What an account may do: read a file, or enter a directory (not list it)."""
_VERSION = struct.pack("<I", 2)
_ENTRY = struct.Struct("<HHI")
_OWNER, _ACCOUNT, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
_NOBODY_NAMED = 0xFFFFFFFF


def allow(target: int | str, uids: Iterable[int], permission: int, *, owner: int) -> None:
    """Let these accounts do this with a file or directory of ours, and nobody else anything; the owner what is said.

    `OSError` if that cannot be: the file system may know no access lists.
    """
    entries = [(_OWNER, owner, _NOBODY_NAMED)]
    entries += [(_ACCOUNT, permission, uid) for uid in sorted(uids)]
    entries += [(_GROUP, 0, _NOBODY_NAMED), (_MASK, permission, _NOBODY_NAMED), (_OTHERS, 0, _NOBODY_NAMED)]
    os.setxattr(target, ATTRIBUTE, _VERSION + b"".join(_ENTRY.pack(*entry) for entry in entries))


def remove(target: int | str) -> None:
    """Have only the mode count."""
    with contextlib.suppress(OSError):  # It has none, as a rule.
        os.removexattr(target, ATTRIBUTE)


def exist(target: int | str) -> bool:
    """Whether it has one."""
    try:
        return bool(os.getxattr(target, ATTRIBUTE))
    except OSError:
        return False


def allowed(error: OSError) -> str:
    """What a directory has to be that cannot have one, in the words of an `InvalidOption`."""
    return f"one on a file system with access lists (POSIX ACL), as run_as names several accounts ({error.strerror})"
