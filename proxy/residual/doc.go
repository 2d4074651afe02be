// Package residual remembers, at the sender, the tensors that may lose something: the residual that error feedback
// carries from value to value, and as much of the last value as the content check compares the next one with. A memory
// belongs to a tensor (its job and key) and not to a connection.
//
// A [Store] holds all of them within one limit of bytes:
//
//	Dense  a tensor with a value for every index: residual by element, last value, and the blocks that it was cut into
//	Rows   a sparse tensor: residual by row, which waits until the row comes again, the range of its blocks' sizes, and its guard
//
// Two more things can be done with a residual. A flush ([Dense.Flush], [Flush]) adds it to a value that then travels
// exactly. A file ([Store.Save], [Store.Load]) takes it across a restart, where the tensor outlives its connection.
//
// # Locks
//
// A goroutine that holds a lock of this list takes no other lock of it:
//
//	ledger.mu  a Store's tensors, jobs and bytes, and its Rows; Events are told under it
//	Dense.mu   a tensor's residual, last value and blocks; senders hold it ([Dense.Lock]) while a block is encoded
//	Sums.mu    the messages whose results are awaited
//
// They have the last rank of package proxy/internal/rank: they may be taken under any other ranked lock, and none under
// them. rank_test.go checks it.
package residual
