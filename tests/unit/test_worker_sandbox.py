"""What a sandboxed command cannot do; each is tried for real, as the strongest user that the tests run as."""
# ruff: noqa: ASYNC220, ASYNC240  nothing else runs in a test's loop; parameters of cases

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from agent.worker._availability import available
from agent.worker._errors import NotRun
from agent.worker._process import SUPERVISOR, Completed, completed, encoded, run_command
from agent.worker._sandbox import PLACE, Sandbox
from agent.worker.child._order import Order

SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65534


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    """A workspace inside a store inside a project, as it is in a run."""
    if not available():
        pytest.skip(available().reason)
    fork = tmp_path / ".savepoint" / "forks" / "f1"
    fork.mkdir(parents=True)
    (tmp_path / ".savepoint" / "store.db").write_text("receipts")
    return fork


async def run(fork: Path, text: str) -> Completed:
    store = fork.parents[1]
    sandbox = Sandbox(workspace=fork, shown=(*Sandbox(workspace=fork).shown, store.parent), hidden=(store,))
    return await run_command(text, cwd=fork, sandbox=sandbox, timeout_s=30)


async def test_writes_land_in_the_fork(fork: Path):
    done = await run(fork, "echo new > file; mkdir -p a/b; pwd")
    assert done.output == f"{PLACE}\n"  # the same in every attempt, wherever the fork lies
    assert (fork / "file").read_text() == "new\n"
    assert (fork / "a/b").is_dir()


async def test_the_host_cannot_be_written(fork: Path, tmp_path: Path):
    (tmp_path / "host").write_text("old")
    places = f"/etc/x /usr/x /x /run/x /root/x /home/x /dev/x /sys/x /proc/x {tmp_path}/x {tmp_path}/host {fork}/../x"
    done = await run(fork, f"for place in {places}; do (echo new > $place) 2>/dev/null && echo $place; done; true")
    assert done.output == ""
    assert (tmp_path / "host").read_text() == "old"


async def test_the_host_is_readable(fork: Path):
    assert (await run(fork, "cat /etc/passwd")).output == Path("/etc/passwd").read_text()


async def test_the_store_and_the_homes_look_empty(fork: Path, tmp_path: Path):
    (tmp_path / "host").write_text("seen")
    done = await run(
        fork,
        f"cat {tmp_path}/host; cat {tmp_path}/.savepoint/store.db; ls -A ~ /home /run; echo :; ls -A {tmp_path}/.savepoint",
    )
    assert "seen" in done.output
    assert "receipts" not in done.output
    assert done.output.endswith("/home:\n\n/run:\n\n/tmp/home:\n:\n")


async def test_temporary_files_and_home_are_private_and_writable(fork: Path):
    text = "for place in /tmp /var/tmp /dev/shm ~; do echo x > $place/private-probe && cat $place/private-probe; done"
    assert (await run(fork, text)).output == "x\n" * 4
    assert not [place for place in ("/tmp", "/var/tmp", "/dev/shm") if Path(place, "private-probe").exists()]
    assert (await run(fork, "ls ~ /var/tmp /dev/shm; ls -A /tmp")).output.count("private-probe") == 0


async def test_the_read_only_host_cannot_be_remounted(fork: Path):
    tricks = (
        "mount -o remount,rw /",
        "mount -o remount,bind,rw /",
        "mount --bind / /tmp",
        "umount /run",
        "umount -l /run",
        "mount -t tmpfs none /tmp",
        "unshare -m true",
        "unshare -Urm sh -c 'mount -o remount,bind,rw / || umount -l /run || touch /etc/savepoint-probe'",
        "chroot / true",
        "mknod disk b 8 0",
        "nsenter -t 1 -m true",
        "echo 1 > /proc/sys/kernel/sysrq",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo x > /sys/kernel/mm/ksm/run",
        "hostname changed",
        "ip link set lo down",
        "chown 1 /tmp",
    )
    worked = "; ".join(f"({trick}) >/dev/null 2>&1 && echo '{trick.replace(chr(39), '')}'" for trick in tricks)
    assert (await run(fork, f"{worked}; true")).output == ""
    assert not Path("/etc/savepoint-probe").exists()


async def test_no_privilege_is_held_or_can_be_had(fork: Path):
    done = await run(fork, "grep -E '^(Cap|NoNewPrivs)' /proc/self/status; grep -E '^(Cap|NoNew)' /proc/1/status")
    facts = [line.split() for line in done.output.splitlines()]
    assert len(facts) == 12
    assert {value for name, value in facts if name != "NoNewPrivs:"} == {"0" * 16}
    assert {value for name, value in facts if name == "NoNewPrivs:"} == {"1"}


async def test_only_harmless_devices(fork: Path):
    done = await run(fork, "ls /dev; echo gone > /dev/null; head -c 4 /dev/zero | wc -c; find /dev -type b")
    names = "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"
    assert done.output.split() == [*names.split(), "4"]


async def test_there_is_no_network_but_its_own_loopback(fork: Path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
        text = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo reached; tail -n +3 /proc/net/dev | cut -d: -f1; wc -l </proc/net/route"
        done = await run(fork, text)
    assert "Connection refused" in done.output
    assert done.output.splitlines()[-2:] == ["    lo", "1"]


async def test_abstract_sockets_of_the_host_are_out_of_reach(fork: Path):
    program = "import socket; socket.socket(socket.AF_UNIX).connect('\\0savepoint-probe')"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0savepoint-probe")
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("\0savepoint-probe")
        done = await run(fork, f'python3 -c "{program}"' if shutil.which("python3", path="/usr/bin") else "false")
    assert done.exit_code != 0


async def test_processes_of_the_host_are_neither_seen_nor_killed(fork: Path):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        done = await run(fork, f"echo /proc/[0-9]*; kill -9 {host.pid}; kill -9 -1; echo not reached")
        assert host.communicate(b"alive") == (b"alive", None)
    assert "/proc/1 /proc/2" in done.output
    assert f"/proc/{host.pid} " not in done.output
    assert host.returncode == 0


async def test_the_owners_secrets_are_not_in_the_sandbox(fork: Path):
    assert "PYTEST_CURRENT_TEST" in os.environ
    done = await run(fork, "cat /proc/*/environ | tr '\\0' '\\n'; ls -l /proc/1/fd /proc/self/fd")
    assert "PYTEST_CURRENT_TEST" not in done.output
    assert "socket:" not in done.output


async def test_a_sandbox_that_cannot_be_made_runs_nothing(fork: Path):
    gone = Sandbox(workspace=fork / "gone")
    with pytest.raises((NotRun, FileNotFoundError)):
        await run_command("touch /tmp/savepoint-probe", cwd=fork, sandbox=gone)


async def test_outside_a_sandbox_the_host_is_written(tmp_path: Path):
    (tmp_path / "work").mkdir()
    done = await run_command("echo new > ../outside", cwd=tmp_path / "work", sandbox=None)
    assert not done.sandboxed
    assert (tmp_path / "outside").read_text() == "new\n"


@pytest.mark.skipif(os.getuid() != 0, reason="the other tests already run without privileges")
def test_it_holds_for_an_unprivileged_user_too(tmp_path_factory: pytest.TempPathFactory):
    if not Path(SYSTEM_PYTHON).exists():
        pytest.skip(f"needs {SYSTEM_PYTHON}, which every user can start")
    fork = Path("/var/tmp/savepoint-nobody-probe")
    shutil.rmtree(fork, ignore_errors=True)
    fork.mkdir()
    os.chown(fork, NOBODY, NOBODY)
    layout = Sandbox(workspace=fork, shown=()).layout()
    text = "id -u; echo new > file; touch /etc/x || touch /var/tmp/y; grep -c 0000000000000000 /proc/self/status; ls /home; kill -9 1; echo end"
    order: Order = {
        "argv": ["/bin/sh", "-c", text],
        "cwd": layout["place"],
        "env": {"PATH": "/usr/bin:/bin"},
        "timeout_s": 20.0,
        "grace_s": 0.0,
        "limit": 4096,
        "layout": layout,
    }
    supervisor = (SYSTEM_PYTHON, *SUPERVISOR[1:])
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(
            supervisor, stdin=pipe, stdout=pipe, user=NOBODY, group=NOBODY, extra_groups=[]
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(encoded(order))
            process.stdin.flush()
            done = completed(process.stdout.read(), order)
        written = (fork / "file").read_text()
    finally:
        shutil.rmtree(fork)
    assert written == "new\n"
    assert done.output.startswith(f"{NOBODY}\n")
    assert "Read-only file system" in done.output
    assert done.output.endswith("end\n")
    assert not Path("/var/tmp/y").exists()
