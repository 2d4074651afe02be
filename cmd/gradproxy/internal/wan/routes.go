package wan

import "time"

// nextHops returns, for every two sites, the neighbour through which the one reaches the other: along the path of the
// fewest links and, among these, of the shortest round trip; -1 where there is none or it is the same site. Paths are
// the same in both directions.
func (t *Topology) nextHops() [][]int {
	n := len(t.Sites)
	best := make([][]distance, n)
	next := make([][]int, n)
	for i := range n {
		best[i], next[i] = make([]distance, n), make([]int, n)
		for j := range n {
			best[i][j], next[i][j] = distance{hops: n}, -1 // farther than any path
		}
		best[i][i] = distance{}
	}
	for _, l := range t.Links {
		best[l.From][l.To], best[l.To][l.From] = distance{1, l.RTT()}, distance{1, l.RTT()}
		next[l.From][l.To], next[l.To][l.From] = l.To, l.From
	}
	for k := range n { // Floyd and Warshall
		for i := range n {
			for j := range n {
				through := distance{best[i][k].hops + best[k][j].hops, best[i][k].rtt + best[k][j].rtt}
				if through.less(best[i][j]) {
					best[i][j], next[i][j] = through, next[i][k]
				}
			}
		}
	}
	return next
}

type distance struct {
	hops int
	rtt  time.Duration
}

func (d distance) less(e distance) bool {
	return d.hops < e.hops || d.hops == e.hops && d.rtt < e.rtt
}
