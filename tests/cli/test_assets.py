"""Themes and fixtures are found wherever the package was installed."""

import pytest

from gpuconsole import assets
from gpuconsole.errors import ConsoleError


@pytest.mark.parametrize("name", ["themes", "fixtures"])
def test_the_bundled_folders_are_found(name: str) -> None:
    assert assets.folder(name).is_dir()


def test_a_folder_that_is_missing_is_an_error_with_a_next_step() -> None:
    with pytest.raises(ConsoleError, match="reinstall gpuconsole"):
        assets.folder("nothing")
