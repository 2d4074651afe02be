package tunnel

import "github.com/pion/logging"

// noLog discards the log of pion/dtls: its errors say as much, and anyone can send datagrams that would fill a log.
type noLog struct{}

func (noLog) NewLogger(string) logging.LeveledLogger { return noLog{} }

func (noLog) Trace(string)          {}
func (noLog) Tracef(string, ...any) {}
func (noLog) Debug(string)          {}
func (noLog) Debugf(string, ...any) {}
func (noLog) Info(string)           {}
func (noLog) Infof(string, ...any)  {}
func (noLog) Warn(string)           {}
func (noLog) Warnf(string, ...any)  {}
func (noLog) Error(string)          {}
func (noLog) Errorf(string, ...any) {}
