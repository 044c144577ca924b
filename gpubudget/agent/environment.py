"""What a workload's process finds around it: its user, folder and environment variables.

The agent's own variables never reach a workload, and a workload's own cannot replace those that the agent gives.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpubudget.agent.supervise import MARK
from gpubudget.agent.wire import Run
from gpubudget.errors import RefusedError

PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME", "SHELL")
"""All that a workload inherits from the agent: in particular no token, proxy or credential."""


def user_of(owner: str, *, run_as_root: bool) -> dict[str, Any] | None:
    """Whose identity the process takes (name, uid, gid, groups, home, shell), or None for the agent's own.

    Only root can take another's. Raises RefusedError if the process would run as root without leave.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(owner)
    except (KeyError, ValueError):
        entry = None
    if entry and entry.pw_uid:
        groups = os.getgrouplist(owner, entry.pw_gid)
        who = {"name": owner, "uid": entry.pw_uid, "gid": entry.pw_gid, "groups": groups}
        return {**who, "home": entry.pw_dir, "shell": entry.pw_shell}
    if run_as_root:
        return None
    what = "is root" if entry else "is not a user of this host"
    raise RefusedError(
        f"the owner {owner!r} {what}, and the agent does not run workloads as root",
        hint="create the user on every host, or set unknown_owners: run-as-root in the agent's configuration",
    )


def environment(
    order: Run, user: dict[str, Any] | None, checkpoints: Path, record: Path, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of the process."""
    given = {name: inherited[name] for name in PASSED_ON if name in inherited}
    given.setdefault("PATH", os.defpath)
    if user:
        own = {"HOME": user["home"], "USER": user["name"], "LOGNAME": user["name"], "SHELL": user["shell"]}
        given.update(own)
    return {
        **given,
        **(order.env or {}),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order in which the agent counts them
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, order.gpus)),
        "GPUBUDGET_WORKLOAD": order.workload,
        "GPUBUDGET_ATTEMPT": str(order.attempt),
        "GPUBUDGET_RANK": str(order.rank),
        "GPUBUDGET_HOSTS": ",".join(order.hosts),
        "GPUBUDGET_NUM_HOSTS": str(len(order.hosts)),
        "GPUBUDGET_GPUS_PER_HOST": str(order.gpus_per_host),
        "GPUBUDGET_MASTER_ADDR": order.hosts[0],
        "GPUBUDGET_CHECKPOINT_DIR": str(checkpoints),
        MARK: str(record),
    }
