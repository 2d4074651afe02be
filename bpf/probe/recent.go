package probe

// A Place says where the newest calls of a process are in the memory of a [Recent].
type Place struct {
	Epoch uint32 // of the process, which no other process ever has
	Index uint32 // which no other process has while it lives
}
