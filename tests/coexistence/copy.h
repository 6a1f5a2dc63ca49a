#pragma once

/// What a plugin with a whole copy of the library in it offers to the program that loads it. Plain
/// C, so that nothing of the library is shared by way of this interface. The functions return null,
/// or the text of the error; the text lives until the next call.

extern "C" {

/// Starts a server of this copy on a port of the kernel's choice.
const char* copy_start_server(unsigned short* port);
/// Ends it.
void copy_stop_server();
/// Opens a session with the server on `port` of this host over `transport`, writes `value` and
/// reads what stands where the other copy has written, `theirs`, unless that is 0.
const char* copy_exchange(unsigned short port, const char* transport, unsigned char value,
                          unsigned char theirs);
/// The file whose code runs when this copy calls a function of the library.
const char* copy_file();
}
