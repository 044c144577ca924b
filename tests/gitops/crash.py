"""Kill -9 of the reconciler, again and again, and what must hold afterwards.

    python -m tests.gitops.crash --kills 100

A real daemon goes on while reconcilers of a repository are killed at random moments between their start and their end.
After every kill the daemon has the tree of the commit before or that of the new one, whole: its digest is worked out
anew from every budget that the daemon shows. Then the next round ends well and the daemon has the new one. One round in
three meets a second kill first. The repository is read in turns as a folder and through a mirror, which is left as the
kill left it.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from gpubudget.core import plain
from gpubudget.core.budget import Tree
from gpubudget.gitops.folder import load_folder
from tests.conftest import GitRepo
from tests.daemon.harness import Api, Daemon, stopped_at_end

BUDGETS = 300


class World:
    """A repository, a daemon and the reconciler between them."""

    def __init__(self, folder: Path, daemon: Daemon, api: Api) -> None:
        self.repo = GitRepo(folder / "work")
        self.repo.path.mkdir()
        self.repo.git("init", "--quiet", "--initial-branch=main")
        self.api = api
        self.cache = folder / "cache"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GPUBUDGET_")},
            "GPUBUDGET_URL": daemon.url,
            "GPUBUDGET_TOKEN": str(api.token),
        }
        self.number = 0

    def commit(self) -> tuple[str, str]:
        """A new commit in which one budget after the other has another share; its id and its tree's digest."""
        self.number += 1
        rows = [f"  b{n}: {{share: {1 + (n == self.number % BUDGETS)}/1000, members: [ben]}}\n" for n in range(BUDGETS)]
        files = {
            "budgets/cluster.yaml": "kind: Cluster\npools:\n  h100: {hosts: 4, gpus_per_host: 8}\n",
            "budgets/budget.yaml": "kind: Budget\nmanagers: [ines]\nchildren:\n" + "".join(rows),
        }
        commit = self.repo.commit(files, f"number {self.number}")
        tree = load_folder(self.repo.path / "budgets").tree
        assert tree is not None
        return commit, plain.digest(tree)

    def reconciler(self) -> subprocess.Popen[str]:
        """A round, as a process; through a mirror every other time."""
        place = self.repo.url if self.number % 2 else str(self.repo.path)
        command = [sys.executable, "-m", "gpubudget", "reconcile", "--repo", place, "--cache-dir", str(self.cache)]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def converge(self) -> float:
        """A round that is left alone; how long it took."""
        begun = time.monotonic()
        process = self.reconciler()
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
        return time.monotonic() - begun

    def killed(self, after: float) -> bool:
        """Kill a round at a moment; whether it had not ended by then."""
        process = self.reconciler()
        time.sleep(after)
        process.kill()
        process.communicate()
        return process.returncode < 0

    def applied(self) -> tuple[str, str]:
        """The commit that the daemon has, and the digest of the tree that it shows."""
        answer = self.api("GET", "/v1/budgets/applied")
        digest = plain.digest(plain.decode(Tree, answer["tree"]))
        assert digest == answer["digest"]
        return answer["commit"], digest


def crash(folder: Path, kills: int, seed: int = 0, report: Callable[[str], None] = lambda _: None) -> Counter[str]:
    """Kill so many rounds and check after each; how often the daemon had which tree."""
    chance, seen = random.Random(seed), Counter[str]()
    with stopped_at_end(Daemon(folder, process=True)) as daemon:
        world = World(folder, daemon, daemon.api())
        old = world.commit()
        world.converge()
        longest = max(world.converge(), world.converge())
        new = world.commit()
        while seen["kills"] < kills:
            seen["kills"] += world.killed(chance.uniform(0, longest))
            found = world.applied()
            assert found in {old, new}, f"the daemon has {found}, neither {old} nor {new}"
            seen["new" if found == new else "old"] += 1
            if chance.random() < 1 / 3:
                continue
            world.converge()
            assert world.applied() == new
            old, new = new, world.commit()
            if seen["kills"] % 10 == 0:
                report(f"{seen['kills']} kills")
    return seen


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="gpubudget-crash-"))
    try:
        seen = crash(folder, options.kills, options.seed, print)
    except BaseException:
        print(f"what is left is in {folder}")
        raise
    shutil.rmtree(folder)
    print(
        f"{seen['kills']} kills in {time.monotonic() - begun:.0f} s: the old tree {seen['old']} times, the new one "
        f"{seen['new']} times, never another, and each next round converged"
    )


if __name__ == "__main__":
    main()
