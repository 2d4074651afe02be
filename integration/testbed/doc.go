// Package testbed runs unmodified training jobs across an emulated WAN on one machine: a site is a network namespace
// with the ranks of that site and, if wanted, a gradproxy beside them, as a sidecar in the job's own namespace; between
// every two sites there is a link of package wansim.
//
//	site a: 198.18.1.0/24, 2001:db8:1::/48        link         site b: 198.18.2.0/24, 2001:db8:2::/48
//	  ranks 0, 2, … ── nft redirect ─▶ gradproxy ═══════════ gradproxy ─▶ ranks 1, 3, …
//
// RFC 2544 and RFC 3849 set the addresses aside for benchmarks and documentation. The package needs Linux, root,
// nft, and util-linux.
package testbed
