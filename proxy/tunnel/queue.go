package tunnel

// A queue is a first-in, first-out list. The zero queue is empty.
type queue[T any] struct {
	ring    []T // its length is a power of two
	head, n int
}

func (q *queue[T]) push(v T) {
	if q.n == len(q.ring) {
		ring := make([]T, max(8, 2*q.n))
		for i := range q.n {
			ring[i] = q.ring[(q.head+i)&(q.n-1)]
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = v
	q.n++
}

// peek returns the first element; the queue is not empty.
func (q *queue[T]) peek() T { return q.ring[q.head] }

// at returns the i-th element, from 0; there are more than i.
func (q *queue[T]) at(i int) T { return q.ring[(q.head+i)&(len(q.ring)-1)] }

// pop removes the first element and returns it; the queue is not empty.
func (q *queue[T]) pop() T {
	v := q.ring[q.head]
	var zero T
	q.ring[q.head] = zero
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	if q.n == 0 && len(q.ring) > 1024 {
		*q = queue[T]{}
	}
	return v
}
