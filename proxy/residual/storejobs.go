package residual

// Join returns the Job of that name, which the caller must Leave. A connection without a job has one of its own.
func (s *Store) Join(name string) *Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[name]
	if j == nil {
		j = &Job{name: name}
		if name != "" {
			s.jobs[name] = j
		}
	}
	j.users++
	return j
}

// Leave ends one use of a Job. After the last one the job of that name begins anew.
func (s *Store) Leave(j *Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.users--; j.users == 0 {
		delete(s.jobs, j.name)
	}
}
