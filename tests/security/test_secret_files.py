"""Files of tokens and keys that others could read or change are not taken, and the message says how to mend that."""

import os
from pathlib import Path

import pytest

from sparrow_py.access import secret_files
from sparrow_py.access.principals import TOKEN_FILE_BYTES_MAX, TOKENS_MAX
from sparrow_py.access.secret_files import check_tls_files, read_tokens, tls_of, tls_of_environment
from sparrow_py.auth import TLS
from sparrow_py.errors import InvalidOption

SECRET, OTHER = "s" * 32, "o" * 32
SOMEBODY = 12345


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_for_our_eyes_only(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert read_tokens(str(path)).dialling == SECRET


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o602, 0o644, 0o666, 0o610])
def test_what_others_may_use_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(InvalidOption, match=f"not one of mode {mode:04o}; chmod go-rwx {path}"):
        read_tokens(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_whose_file_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(path, SOMEBODY, -1)
    with pytest.raises(InvalidOption, match=f"not of user {SOMEBODY}"):
        read_tokens(str(path))
    # Who is not root may be given one by root, through the file's group.
    os.chown(path, 0, -1)
    monkeypatch.setattr(secret_files.os, "geteuid", lambda: SOMEBODY)
    path.chmod(0o640)
    assert len(read_tokens(str(path))) == 1
    for mode in (0o660, 0o644, 0o650):
        path.chmod(mode)
        with pytest.raises(InvalidOption, match="chmod"):
            read_tokens(str(path))


def test_a_link_is_as_good_as_what_it_leads_to(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    assert len(read_tokens(str(link))) == 1
    path.chmod(0o644)
    with pytest.raises(InvalidOption, match="0644"):
        read_tokens(str(link))


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    for name in ("fifo", "."):
        with pytest.raises(InvalidOption, match="allowed: a regular file"):
            read_tokens(str(tmp_path / name))
    for name in ("nothing", "a\0b"):
        with pytest.raises(InvalidOption, match="a readable file"):
            read_tokens(str(tmp_path / name))


def test_what_is_in_it(path: Path) -> None:
    path.write_bytes(b"\xff" * 40)
    with pytest.raises(InvalidOption, match="a file of text"):
        read_tokens(str(path))
    path.write_bytes(b"#" * TOKEN_FILE_BYTES_MAX + b"\n")
    with pytest.raises(InvalidOption, match=f"at most {TOKEN_FILE_BYTES_MAX} bytes"):
        read_tokens(str(path))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", ", without a secret"),
        ("# nothing\n", ", without a secret"),
        ("short", ""),
        (f"# ours\ncluster {SECRET}\nclutser {OTHER}\n", ", line 3"),
        (f"cluster {SECRET}\ncluster short\n", ", line 2"),
        (f"cluster {SECRET}\ncluster {SECRET}\n", ", line 2"),
        (f"cluster {SECRET}\n" * (TOKENS_MAX + 1), f", with {TOKENS_MAX + 1} tokens"),
    ],
)
def test_what_is_wrong_in_it_is_said_with_its_path(
    text: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tokens").write_text(text)
    Path("tokens").chmod(0o600)
    with pytest.raises(InvalidOption) as caught:
        read_tokens("tokens")
    assert str(caught.value).startswith(f"token_file: 'tokens{where}' is not valid; allowed: ")


def test_the_environment() -> None:
    assert len(read_tokens(None, {})) == 0
    assert read_tokens(None, {"SPARROW_TOKEN": SECRET}).dialling == SECRET
    with pytest.raises(InvalidOption, match="SPARROW_TOKEN") as caught:
        read_tokens(None, {"SPARROW_TOKEN": "short-secret"})
    assert "short-secret" not in str(caught.value)


def test_three_files_or_none() -> None:
    assert tls_of(None, None, None) is None
    assert tls_of("", "", "") is None
    assert tls_of("c", "k", "a") == TLS("c", "k", "a")
    for given in (("c", None, None), ("c", "k", None), (None, "k", "a"), ("c", "", "a")):
        with pytest.raises(InvalidOption, match="tls_cert, tls_key, tls_ca go together"):
            tls_of(*given)
    assert tls_of_environment({"SPARROW_TLS_CERT": "c", "SPARROW_TLS_KEY": "k", "SPARROW_TLS_CA": "a"}) is not None


def test_a_key_is_private_and_certificates_may_be_read(tmp_path: Path) -> None:
    tls = TLS(*(str(tmp_path / name) for name in ("cert", "key", "ca")))
    for name in (tls.cert, tls.key, tls.ca):
        Path(name).touch(0o644)
        Path(name).chmod(0o644)
    with pytest.raises(InvalidOption, match=r"tls_key: .* chmod go-rwx"):
        check_tls_files(tls)
    Path(tls.key).chmod(0o600)
    check_tls_files(tls)
    for option, name in (("tls_cert", tls.cert), ("tls_ca", tls.ca)):
        Path(name).chmod(0o664)
        with pytest.raises(InvalidOption, match=rf"{option}: .* chmod go-w "):
            check_tls_files(tls)
        Path(name).chmod(0o644)
