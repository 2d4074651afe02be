package app

// A Request says how a Reader is to read.
type Request struct {
	// Into is where the bytes are wanted; nil: in the buffer. The buffer has room for them in any case.
	Into []byte
	// Room is how many bytes of room stand before the bytes in the buffer.
	Room int
	// Size is the maximum size of the buffer in bytes, Room included. It may have fewer if there is no memory.
	Size int
	// Min is how many bytes must have come before a waiting Read is woken; the caller must know that they will. 0 is 1.
	Min int
	// Ahead is the number of bytes below which nobody is woken while no Read waits, after this one: the caller expects
	// many. 0: it expects none.
	Ahead int
}
