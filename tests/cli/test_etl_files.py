"""Which files a person meant."""

from pathlib import Path

from penstock.cli.etl_files import find


def lay_out(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def test_a_folder_gives_what_can_be_read_from_all_of_its_depths_and_says_what_it_left_out(tmp_path: Path):
    lay_out(tmp_path, "b.PDF", "a.txt", "deep/er/c.docx", "deep/setup.exe", ".hidden/d.pdf", ".e.pdf")
    found = find([tmp_path])
    assert [document.name for document in found.documents] == ["a.txt", "b.PDF", "deep_er_c.docx"]
    assert found.left_out == [tmp_path / "deep" / "setup.exe"]


def test_a_link_out_of_a_folder_is_left_out_and_one_within_it_is_not(tmp_path: Path):
    (tmp_path / "secret.txt").write_text("mine")
    folder = tmp_path / "sent"
    folder.mkdir()
    (folder / "letter.txt").write_text("yours")
    (folder / "copy.txt").symlink_to(folder / "letter.txt")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    found = find([folder])
    assert [document.path.name for document in found.documents] == ["copy.txt"]
    assert [path.name for path in found.left_out] == ["link.txt"]


def test_a_file_that_was_named_is_taken_whatever_it_is_called(tmp_path: Path):
    lay_out(tmp_path, "strange.bin")
    found = find([tmp_path / "strange.bin"])
    assert [document.name for document in found.documents] == ["strange.bin"]
    assert found.left_out == []


def test_a_file_that_was_named_twice_is_submitted_once(tmp_path: Path):
    lay_out(tmp_path, "a.pdf")
    assert len(find([tmp_path / "a.pdf", tmp_path, tmp_path / "a.pdf"]).documents) == 1


def test_namesakes_of_different_folders_get_names_of_their_own(tmp_path: Path):
    lay_out(tmp_path, "one/a.pdf", "two/a.pdf", "two/a-2.pdf")
    paths = [tmp_path / "one" / "a.pdf", tmp_path / "two" / "a-2.pdf", tmp_path / "two" / "a.pdf"]
    found = find(paths)
    assert [(document.path.parent.name, document.name) for document in found.documents] == [
        ("one", "a.pdf"),
        ("two", "a-2.pdf"),
        ("two", "a-3.pdf"),
    ]


def test_an_empty_folder_gives_nothing(tmp_path: Path):
    assert find([tmp_path]).documents == []
