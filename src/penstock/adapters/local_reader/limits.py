"""Resource limits of a document and of each sandboxed call."""

from dataclasses import dataclass, replace

from penstock.kernel.sandbox.limits import SandboxLimits

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ReaderLimits:
    """Limits for documents."""

    max_file_bytes: int = 512 * MIB
    max_pages: int = 5000
    max_page_pixels: int = 50_000_000
    parser_memory_bytes: int = 1024 * MIB
    parser_seconds: float = 120  # of one parser call
    parser_cpu_seconds: int = 60
    page_seconds: float = 300  # of OCR for one page; a dense one takes 10 s on a dedicated CPU
    page_cpu_seconds: int = 120
    page_memory_bytes: int = 3072 * MIB  # a large photo is held three times while it is rotated and deskewed

    def parsing(self, size_bytes: int) -> SandboxLimits:
        """For parsing a file of this size, which a parser may hold in memory more than once."""
        memory_bytes = self.parser_memory_bytes + 3 * size_bytes
        return SandboxLimits(
            memory_bytes=memory_bytes,
            cpu_seconds=self.parser_cpu_seconds,
            seconds=self.parser_seconds,
            result_bytes=64 * MIB,
        )

    def parsing_again(self, size_bytes: int, pages: int) -> SandboxLimits:
        """For some pages of a file that broke its parser: little, since each page that hangs uses up all of it."""
        usual = self.parsing(size_bytes)
        cpu_seconds = min(usual.cpu_seconds, 5 + pages // 2 + size_bytes // (32 * MIB))
        return replace(usual, cpu_seconds=cpu_seconds, seconds=min(usual.seconds, 2.0 * cpu_seconds))

    def recognizing(self, size_bytes: int) -> SandboxLimits:
        """For OCR of one page."""
        return SandboxLimits(
            memory_bytes=self.page_memory_bytes + size_bytes,
            cpu_seconds=self.page_cpu_seconds,
            seconds=self.page_seconds,
            result_bytes=16 * MIB,
        )
