package tc

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
)

// inNamespace runs f on a thread inside the namespace of that name, "" for the caller's.
func inNamespace(name string, f func() error) error {
	if name == "" {
		return f()
	}
	handle, err := netns.GetFromName(name)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", name, err)
	}
	defer handle.Close()
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the thread, which is in a foreign namespace, ends with this goroutine.
		runtime.LockOSThread()
		if err := netns.Set(handle); err != nil {
			result <- fmt.Errorf("enter namespace %s: %w", name, err)
			return
		}
		result <- f()
	}()
	return <-result
}
