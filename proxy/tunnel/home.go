package tunnel

import (
	"context"
	"sync"
)

// A home is this site as its peers know it: everything that stays while peers come and go.
type home struct {
	near
	cfg       Config // defaults filled in
	mem       buffers
	transport Transport

	ctx     context.Context // ends with Endpoint.Close
	cancel  context.CancelFunc
	running sync.WaitGroup // goroutines of the Endpoint, of peers and of carriers
}
