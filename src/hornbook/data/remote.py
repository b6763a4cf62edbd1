"""Files at a URL (`s3://`, `gs://`, `http://`, `memory://`, `file://`), through fsspec."""

import fsspec


def is_url(path: object) -> bool:
    """Whether a path is a URL rather than the name of a local file.

    >>> is_url("s3://bucket/corpus"), is_url("corpora/law")
    (True, False)
    """
    return "://" in str(path)


def file_system(path: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """(file system, path inside it) of a local path or a URL; raises a `ValueError` if a package for it is missing."""
    try:
        return fsspec.core.url_to_fs(str(path))
    except ImportError as error:
        raise ValueError(f"{path} cannot be opened without another package: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path} cannot be opened: {error}") from None
