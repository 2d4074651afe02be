package path

import (
	"time"

	"github.com/gradproxy/gradproxy/tensor"
)

// NoMetrics implements Metrics and counts nothing.
type NoMetrics struct{}

func (NoMetrics) Sent(string, string, string, tensor.Role, int, int) {}
func (NoMetrics) Encoded(string, tensor.Role, time.Duration)         {}
func (NoMetrics) Adapted(string, tensor.Role, float64)               {}
func (NoMetrics) Guarded(string, tensor.Role, bool)                  {}
func (NoMetrics) Drifted(string, tensor.Role, float64, float64)      {}
func (NoMetrics) Began(tensor.Tensor)                                {}
func (NoMetrics) FellBack(string, tensor.Role, tensor.Reason)        {}
func (NoMetrics) Doubted(string)                                     {}
func (NoMetrics) GaveUp(string)                                      {}
func (NoMetrics) Decoded(string, tensor.Role, time.Duration)         {}
func (NoMetrics) Delivered(peer, job string, n int)                  {}
