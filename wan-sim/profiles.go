package wansim

import "time"

// A Profile is a path that somebody has measured or trained over, the same in both directions.
type Profile struct {
	Name   string
	Link   Link   // one direction; half of the round-trip time
	Source string // who says so
}

// Profiles returns the paths that come with the package. Rates and round-trip times are their sources'; none states a
// queue, so each is given one bandwidth-delay product, the rule of thumb of Villamizar and Song (High Performance TCP in
// ANSNET, 1994), but at least 256 KiB.
func Profiles() []Profile {
	// H. Lim, D. G. Andersen, M. Kaminsky, "3LC: Lightweight and Effective Traffic Compression for Distributed Machine
	// Learning", arXiv:1802.07389, section 5.2 and table 1: a laboratory's network, its rate limited by Linux traffic
	// control, no delay added.
	const threeLC = "arXiv:1802.07389, table 1"
	// B. Yuan et al., "Decentralized Training of Foundation Models in Heterogeneous Environments", arXiv:2206.01288:
	// regions of Amazon's cloud; the numbers are those of scheduler/generate_sim_com_matrices.py in
	// github.com/DS3Lab/DT-FM, commit 69f05e5. Its delays are round trips: pings between these regions take as long.
	const dtfm = "arXiv:2206.01288, github.com/DS3Lab/DT-FM"
	return []Profile{
		{"3lc-10", profile(10, 0), threeLC},
		{"3lc-100", profile(100, 0), threeLC},
		{"3lc-1000", profile(1000, 0), threeLC},
		{"virginia-ohio", profile(1120, 11), dtfm},
		{"virginia-oregon", profile(790, 67), dtfm},
		{"virginia-ireland", profile(1050, 67), dtfm},
		{"virginia-tokyo", profile(524, 143), dtfm},
		{"oregon-frankfurt", profile(404, 143), dtfm},
		{"tokyo-frankfurt", profile(360, 223), dtfm},
		{"sydney-frankfurt", profile(328, 265), dtfm},
	}
}

// profile returns one direction of a path of so many Mbit/s and milliseconds of round trip.
func profile(mbps, rtt int64) Link {
	const least = 256 << 10 // bytes
	l := Link{Rate: mbps * 1e6 / 8, Delay: time.Duration(rtt) * time.Millisecond / 2}
	l.Queue = max(least, int(l.Rate*rtt/1000))
	return l
}
