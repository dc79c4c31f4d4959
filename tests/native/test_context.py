"""What a context promises to threads that only C++ brings together at one moment."""

import ctypes

import testing_library


def test_threads_of_a_forked_child_come_to_the_parents_context_at_once() -> None:
    library = testing_library.load()
    message = ctypes.create_string_buffer(4096)
    code = library.oocdnn_testing_forked_context(20, message, ctypes.c_int64(len(message)))
    assert code == 0, message.value.decode()
