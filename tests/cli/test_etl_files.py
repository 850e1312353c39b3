"""Which files are submitted."""

from pathlib import Path

from penstock.cli.etl.files import find_files


def lay_out(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def test_a_folder_gives_its_readable_files_recursively_and_reports_skipped_ones(tmp_path: Path):
    lay_out(tmp_path, "b.PDF", "a.txt", "deep/er/c.docx", "deep/setup.exe", ".hidden/d.pdf", ".e.pdf")
    files, skipped = find_files([tmp_path])
    assert [file.name for file in files] == ["a.txt", "b.PDF", "deep_er_c.docx"]
    assert skipped == [tmp_path / "deep" / "setup.exe"]


def test_a_symlink_out_of_a_folder_is_skipped_and_one_within_it_is_not(tmp_path: Path):
    (tmp_path / "secret.txt").write_text("mine")
    folder = tmp_path / "sent"
    folder.mkdir()
    (folder / "letter.txt").write_text("yours")
    (folder / "copy.txt").symlink_to(folder / "letter.txt")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    files, skipped = find_files([folder])
    assert [file.path.name for file in files] == ["copy.txt"]
    assert [path.name for path in skipped] == ["link.txt"]


def test_a_file_given_by_itself_is_accepted_whatever_its_suffix(tmp_path: Path):
    lay_out(tmp_path, "strange.bin")
    files, skipped = find_files([tmp_path / "strange.bin"])
    assert [file.name for file in files] == ["strange.bin"]
    assert skipped == []


def test_a_file_given_twice_is_submitted_once(tmp_path: Path):
    lay_out(tmp_path, "a.pdf")
    files, _ = find_files([tmp_path / "a.pdf", tmp_path, tmp_path / "a.pdf"])
    assert len(files) == 1


def test_files_of_the_same_name_get_unique_names(tmp_path: Path):
    lay_out(tmp_path, "one/a.pdf", "two/a.pdf", "two/a-2.pdf")
    paths = [tmp_path / "one" / "a.pdf", tmp_path / "two" / "a-2.pdf", tmp_path / "two" / "a.pdf"]
    files, _ = find_files(paths)
    assert [(file.path.parent.name, file.name) for file in files] == [
        ("one", "a.pdf"),
        ("two", "a-2.pdf"),
        ("two", "a-3.pdf"),
    ]


def test_an_empty_folder_gives_nothing(tmp_path: Path):
    assert find_files([tmp_path]) == ([], [])
