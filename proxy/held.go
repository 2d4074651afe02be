package proxy

// The frames of small encodings leave several at a time: to wake the tunnel's writer for each, and the far proxy for each of
// its records, costs as much as some codecs. They wait only while there is more to read from the app, so that an app, or a
// network before it, that is slower than this proxy has its blocks sent one by one, as they come.

// mostHeld is how many groups leave together at most: of blocks of 1 MiB two milliseconds' work. They leave earlier if their
// frames are long.
const mostHeld = 4

// writeMore writes a group's frames as write does, for the sender's own goroutine, which will read again at once.
func (s *sender) writeMore(frames ...[]byte) error {
	if !s.app.TellsIdle() {
		return s.write(frames...)
	}
	for _, f := range frames {
		if _, err := s.stream.WriteMore(f); err != nil {
			return err
		}
	}
	if s.held++; s.held >= mostHeld {
		s.flush()
	}
	return nil
}

// flush has what waits leave. It does not wait itself.
func (s *sender) flush() {
	if s.held > 0 {
		s.held = 0
		s.stream.Flush()
	}
}
