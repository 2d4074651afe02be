package inspect

// alikeWithin is the part of the bytes by which policies differ that count as alike.
const alikeWithin = 0.01

// alike says why all policies of a WhatIf cost the same; "": they do not, or there is one only. roles has the bytes of
// tensors.
func (w *WhatIf) alike(roles RoleBytes) string {
	if len(w.Outcomes) < 3 { // direct, and one policy
		return ""
	}
	smallest, largest, lost := w.Outcomes[1].Bytes, w.Outcomes[1].Bytes, 0.0
	for _, o := range w.Outcomes[2:] {
		smallest, largest, lost = min(smallest, o.Bytes), max(largest, o.Bytes), max(lost, o.Error)
	}
	if float64(largest-smallest) > alikeWithin*float64(largest) {
		return ""
	}
	const alike = "All policies cost the same: "
	switch {
	case largest == 0:
		return alike + "no connection crosses a link."
	case roles == (RoleBytes{}):
		return alike + "no parser finds a tensor in the capture."
	case roles.Gradient+roles.State == 0 && roles.Unknown > 0:
		return alike + "nothing proves that a tensor is a gradient, so that all travel exactly. If the job's sums are gradients, --sums gradients says so."
	case roles.Gradient+roles.State == 0:
		return alike + "no tensor of the capture is a gradient or a server's weights, so that all travel exactly."
	case lost == 0:
		return alike + "nothing has lost anything. Either the policies are lossless, or the capture has only the first values of each tensor, which travel exactly."
	}
	return alike + "the tensors that may lose something are a small part of the bytes."
}
