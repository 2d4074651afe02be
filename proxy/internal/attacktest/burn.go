package attacktest

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"
)

// burning is the name of the control.
const burning = "burn"

// burn uses as many cores as its argument says, on the average, for nothing.
func burn(ctx context.Context, ready func(), args ...string) (int, error) {
	cores, err := strconv.ParseFloat(args[0], 64)
	if err != nil {
		return 0, err
	}
	ready()
	began, spent := time.Now(), Spent()
	var all sync.WaitGroup
	for range int(math.Ceil(cores)) {
		all.Go(func() {
			for ctx.Err() == nil {
				if (Spent() - spent).Seconds() > cores*time.Since(began).Seconds() {
					time.Sleep(200 * time.Microsecond)
					continue
				}
				for until := time.Now().Add(100 * time.Microsecond); time.Now().Before(until); {
				}
			}
		})
	}
	all.Wait()
	return 0, nil
}
