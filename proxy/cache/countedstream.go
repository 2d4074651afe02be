package cache

import "github.com/gradproxy/gradproxy/proxy/tunnel"

// A countedStream is a Stream that counts the bytes that are written to it.
type countedStream struct{ bytes int64 }

func (s *countedStream) Write(p []byte) (int, error) { s.bytes += int64(len(p)); return len(p), nil }
func (s *countedStream) ReadChunk() ([]byte, error)  { return nil, ErrLost }
func (s *countedStream) Close() error                { return nil }
func (s *countedStream) Reset(tunnel.Code)           {}
