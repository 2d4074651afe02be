package site

import (
	"reflect"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// Every key of a rule reaches the policy.
func TestRule(t *testing.T) {
	from := policy.FromServer
	got := rule(config.Rule{Job: "resnet", Protocol: "gloo", Direction: "from_server", Roles: []tensor.Role{tensor.Gradient},
		DTypes: []tensor.DType{tensor.BFloat16}, MinBytes: 1, MaxBytes: 2, Codec: "int8", NoFeedback: true, FlushEvery: 3})
	want := policy.Rule{Job: "resnet", Protocol: "gloo", Direction: &from, Roles: []tensor.Role{tensor.Gradient},
		DTypes: []tensor.DType{tensor.BFloat16}, MinBytes: 1, MaxBytes: 2, Codec: "int8", NoFeedback: true, FlushEvery: 3}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for v, i := reflect.ValueOf(want), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the rule of this test lacks %s", v.Type().Field(i).Name)
		}
	}
}

// 0s in the file means that a refused dial is not repeated, unlike the zero value in Settings.
func TestRefusedRetrySetting(t *testing.T) {
	for in, want := range map[time.Duration]time.Duration{0: -1, time.Minute: time.Minute} {
		s, err := settingsOf(&config.Config{RefusedRetry: in}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.RefusedRetry != want {
			t.Errorf("refused_retry %v becomes %v, want %v", in, s.RefusedRetry, want)
		}
	}
}
