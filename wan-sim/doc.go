// Package wansim is a WAN in a box: links with a rate, a delay, jitter, random loss and a finite queue, in two forms
// that share one model.
//
//	Link, Path            the model of one direction; pure: time and seed come in, nothing sleeps
//	Pipe, Wire, Relay     TCP-like streams through it, inside the process; no privileges, any system
//	ConnectNamespaces     IP packets through it, between two Linux network namespaces (needs root)
//
// A direction is a bottleneck followed by a delay:
//
//	offered ─▶ queue (Queue bytes; tail drop) ─▶ bottleneck (Rate) ─▶ loss (Loss) ─▶ Delay + jitter ─▶ arrives
//
// Several directions may share a Bottleneck, which each of them passes first.
//
// Rates count IP bytes: payload and all headers from IP upwards (RFC 5136, section 2.3.1).
// Packets never overtake one another.
package wansim
