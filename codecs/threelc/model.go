package threelc

// A model is the distribution that entropy coding expects of a block's quartic bytes. A table of 243 frequencies would
// take more bytes than many a block's values, so there are three parameters and a bound:
type model struct {
	none       uint16 // bytes that are five zeros, of 2^16: a parameter of its own, since zeros gather in rows and layers
	density    uint16 // values that are no zeros, of 2^16, in the other bytes, as if they were independent
	positive   uint8  // nonzero values that are M and not -M: 2·positive+1 of 2^9
	maxNonzero int    // values of a byte that are no zeros: 0 to 5
}

// total is the sum of the frequencies of all quartic bytes: rANS wants a power of two.
const (
	totalBits = 16
	total     = 1 << totalBits
)

// trits are the number of nonzero values among a quartic byte's five, and the number of values that are M.
var trits = func() (table [256]struct{ nonzero, positive uint8 }) {
	for b := range firstRun {
		for k, rest := 0, b; k < 5; k, rest = k+1, rest/3 {
			if rest%3 != 1 {
				table[b].nonzero++
			}
			if rest%3 == 2 {
				table[b].positive++
			}
		}
	}
	return table
}()

// symbols[k] is the number of quartic bytes, without that of five zeros, with at most k nonzero values.
var symbols = [6]int{0, 10, 50, 130, 210, 242}

// fit returns the model of quartic bytes, and how many of them are five zeros.
func fit(packed []byte) (m model, zeros int) {
	counts := histogram(packed)
	var nonzero, positive, largest int
	for b, n := range counts[:firstRun] {
		if n > 0 {
			nonzero += int(n) * int(trits[b].nonzero)
			positive += int(n) * int(trits[b].positive)
			largest = max(largest, int(trits[b].nonzero))
		}
	}
	zeros = int(counts[fiveZeros])
	if largest == 0 {
		return model{}, zeros
	}
	return model{
		none:       uint16(max(1, min(zeros*total/len(packed), total-symbols[largest]))),
		density:    densityOf(float64(nonzero) / float64(len(packed)-zeros)),
		positive:   uint8(min(positive*256/nonzero, 255)),
		maxNonzero: largest,
	}, zeros
}

// histogram counts bytes; in four tables, since the same byte in a row would wait for itself.
func histogram(b []byte) (counts [256]uint32) {
	var more [3][256]uint32
	i := 0
	for ; i+3 < len(b); i += 4 {
		counts[b[i]]++
		more[0][b[i+1]]++
		more[1][b[i+2]]++
		more[2][b[i+3]]++
	}
	for ; i < len(b); i++ {
		counts[b[i]]++
	}
	for j := range counts {
		counts[j] += more[0][j] + more[1][j] + more[2][j]
	}
	return counts
}

// densityOf returns the density d of independent values if five that are not all zeros have mean nonzero values on
// average: mean = 5d/(1-(1-d)^5), which grows with d.
func densityOf(mean float64) uint16 {
	low, high := 1, total-1
	for low < high {
		middle := (low + high) / 2
		d := float64(middle) / total
		z := 1 - d
		all := float64(float64(z*z)*float64(z*z)) * z
		if some := 1 - float64(all); float64(5*d) < float64(mean*some) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return uint16(low)
}

// A symbol's interval among total numbers. Frequency 0: it does not occur.
type interval struct{ start, freq uint32 }

// intervals sets table to the intervals of all quartic bytes, five zeros first and then in their order, or returns
// false for a model that no encoder makes. Each byte that m allows has at least 1; the remainder of rounding goes to
// five zeros.
func (m model) intervals(table *[256]interval) bool {
	room := total - int(m.none) - symbols[m.maxNonzero]
	if m.none == 0 || m.density == 0 || room < 0 {
		return false
	}
	// weight[k][j]: of one byte with k nonzero values, j of them M; 2^32 is 1.
	var weight [6][6]uint64
	sum := uint64(0)
	for b := range firstRun {
		k, j := trits[b].nonzero, trits[b].positive
		if k == 0 || int(k) > m.maxNonzero {
			continue
		}
		if weight[k][j] == 0 {
			weight[k][j] = m.weight(int(k), int(j))
		}
		sum += weight[k][j]
	}
	next := uint32(0)
	for b := range firstRun {
		k, j := trits[b].nonzero, trits[b].positive
		table[b] = interval{}
		if k > 0 && int(k) <= m.maxNonzero {
			freq := uint32(1)
			if sum > 0 {
				freq += uint32(weight[k][j] * uint64(room) / sum)
			}
			table[b] = interval{next, freq}
			next += freq
		}
	}
	zeros := total - next
	for b := range firstRun {
		table[b].start += zeros
	}
	table[fiveZeros] = interval{0, zeros}
	return true
}

// weight is the probability of a byte with k values that are no zeros, j of them M, if all are independent, of 2^32.
func (m model) weight(k, j int) uint64 {
	w := uint64(1) << 32
	for i := range 5 {
		if i < k {
			w = w * uint64(m.density) >> 16
		} else {
			w = w * (1<<16 - uint64(m.density)) >> 16
		}
	}
	sign := 2*uint64(m.positive) + 1
	for i := range k {
		if i < j {
			w = w * sign >> 9
		} else {
			w = w * (1<<9 - sign) >> 9
		}
	}
	return w
}
