// Package cgroup makes cgroups (version 2) for a proxy and its job, below the one that the process is in: limits that
// hold for the process go on to hold for both, and nothing outside that cgroup is touched.
//
//	…/the cgroup of this process
//	    gradproxy-NAME-NUMBER       locked (flock) for as long as its proxy lives
//	        proxy                   this process moves here
//	        job                     the job starts here
//
// The hierarchy is found among the mounts. Where it is not, or not writable (under "ip netns exec", in a container), it
// is mounted without a place in the file system, which needs CAP_SYS_ADMIN; nobody else sees that mount.
//
// A folder can be removed only when no process is in it. Folders that a killed proxy left are removed by the next one
// that starts in the same cgroup.
package cgroup
