"""Database URLs: what providers and other drivers write is understood, and no password is ever told."""

from urllib.parse import quote

import pytest

from app.storage.postgres.options import PostgresOptions
from app.storage.urls import UnusableDatabase, parse_database_url

_PASSWORD = "p@ss:w/rd%25#?"


@pytest.mark.parametrize(
    ("query", "understood"),
    [
        ("sslmode=require", PostgresOptions(tls={"sslmode": "require"})),
        ("ssl=true", PostgresOptions(tls={"sslmode": "require"})),
        ("sslmode=verify-ca&sslrootcert=/a", PostgresOptions(tls={"sslmode": "verify-ca", "sslrootcert": "/a"})),
        ("application_name=x", PostgresOptions(application_name="x")),
        ("connect_timeout=5", PostgresOptions(connect_timeout_seconds=5)),
        ("connect_timeout=0", PostgresOptions()),
        ("options=-csearch_path%3Dapp", PostgresOptions(settings={"search_path": "app"})),
        ("options=-c%20a%3Db%5C%20c%20--work-mem%3D8MB", PostgresOptions(settings={"a": "b c", "work_mem": "8MB"})),
        ("schema=app", PostgresOptions(settings={"search_path": "app"})),
        ("target_session_attrs=read-write", PostgresOptions(target_session_attrs="read-write")),
        ("pgbouncer=true", PostgresOptions(is_pooled=True)),
        ("prepared_statement_cache_size=0", PostgresOptions(is_pooled=True)),
        ("channel_binding=require&keepalives=1&connection_limit=5", PostgresOptions()),
    ],
)  # fmt: skip
def test_an_option_is_understood(query: str, understood: PostgresOptions) -> None:
    """Each word of libpq, of a provider or of another driver means here what it means there."""
    url = parse_database_url(f"postgres://u@h/n?{query}")
    assert url.options == understood
    assert url.safe == "postgresql://u@h/n"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("aplication_name=x", "'aplication_name', which is not understood here: leave it away (the nearest that is: a"),
        ("sslmode=yes", "sslmode='yes'; it is one of disable, allow, prefer, require, verify-ca, verify-full"),
        ("connect_timeout=soon", "connect_timeout='soon', which is no number of seconds"),
        ("options=search_path", "options that are not understood here"),
        ("target_session_attrs=any-of", "target_session_attrs='any-of'; it is one of"),
    ],
)  # fmt: skip
def test_an_option_that_is_none_is_named(query: str, said: str) -> None:
    """What cannot be followed is refused by its name, with the nearest that is known or what it may be."""
    with pytest.raises(UnusableDatabase) as caught:
        parse_database_url(f"postgresql://u:{quote(_PASSWORD, safe='')}@h/n?{query}")
    assert said in str(caught.value)
    assert "ss:w" not in str(caught.value)


@pytest.mark.parametrize(
    "scheme", ["postgres", "postgresql", "postgresql+asyncpg", "postgresql+psycopg2", "postgres+psycopg"]
)
@pytest.mark.parametrize("password", [_PASSWORD, "p@ss", "p%ss", "a:b", "#?/"])
def test_an_encoded_password_arrives_and_is_not_told(scheme: str, password: str) -> None:
    """A percent-encoded password is what it stands for, whatever it holds, and only three asterisks of it are shown."""
    url = parse_database_url(f"{scheme}://u:{quote(password, safe='')}@h:5/n")
    assert (url.url.password, url.async_url.drivername) == (password, "postgresql+asyncpg")
    assert url.safe.endswith("://u:***@h:5/n")


def test_a_password_with_an_at_sign_of_its_own_arrives() -> None:
    """The last @ ahead of the path ends the password."""
    assert parse_database_url("postgresql://u:p@ss:word@h/n").url.password == "p@ss:word"


@pytest.mark.parametrize("password", [_PASSWORD, "w/rd", "a?b", "a@b/c", "/", "?x=1#"])
def test_a_password_that_cannot_be_told_from_the_rest_is_refused(password: str) -> None:
    """Where a raw password could be read in two ways, the sentence says how to encode it and shows none of it."""
    with pytest.raises(UnusableDatabase, match="write @ as %40") as caught:
        parse_database_url(f"postgresql://u:{password}@h/n")
    assert len(password) < 2 or password not in str(caught.value)


@pytest.mark.parametrize("word", ["user", "password", "dbname"])
def test_who_connects_may_stand_behind_the_question_mark(word: str) -> None:
    """``user``, ``password`` and ``dbname`` are taken as libpq takes them, and shown no more than ahead of it."""
    url = parse_database_url(f"postgresql://h/n?{word}=one%40")
    assert "one@" in (url.url.username, url.url.password, url.url.database)
    assert word != "password" or "one" not in url.safe


@pytest.mark.parametrize("spelled", [_PASSWORD, quote(_PASSWORD), quote(_PASSWORD, safe="")])
def test_a_driver_that_repeats_the_password_is_not_repeated(spelled: str) -> None:
    """Raw or encoded, the password is taken out of what a driver says."""
    url = parse_database_url(f"postgresql://u:{quote(_PASSWORD, safe='')}@h/n")
    assert url.without_password(f"cannot reach postgresql://u:{spelled}@h/n") == "cannot reach postgresql://u:***@h/n"
