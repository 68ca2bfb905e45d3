"""Step over the strings of a GGUF array: the fast twin of ``cpubound.model.gguf.strings``."""

from libc.stdint cimport int64_t, uint64_t


def skip_strings(const unsigned char[::1] window, int64_t position, uint64_t count):
    """Step over up to ``count`` length-prefixed strings that begin inside ``window``.

    As ``cpubound.model.gguf.strings.skip_strings_in_python``, which says what is returned.
    """
    cdef int64_t last = window.shape[0] - 8
    cdef uint64_t end_of_all_files = (<uint64_t> 1 << 62) - 1
    cdef uint64_t length
    cdef int byte
    with nogil:
        while count and position <= last:
            length = 0
            for byte in range(8):
                length |= (<uint64_t> window[position + byte]) << (8 * byte)
            if length > end_of_all_files - <uint64_t> position:
                position = -1
                break
            position += 8 + <int64_t> length
            count -= 1
    return position, count
