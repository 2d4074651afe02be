package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/gradproxy/gradproxy/codecs/all"
	"github.com/gradproxy/gradproxy/integration/cmd/papers/data"
)

// Every codec that a table names exists, so that a full run does not end in a panic.
func TestCodecsExist(t *testing.T) {
	var texts []string
	for _, d := range threelcDesigns {
		texts = append(texts, d.codec)
	}
	for _, list := range [][]contender{fastsgdContenders, skcompressContenders} {
		for _, c := range list {
			texts = append(texts, c.codec)
		}
	}
	for _, text := range texts {
		if text == "" {
			continue
		}
		if _, err := all.New(text); err != nil {
			t.Error(err)
		}
	}
}

// Without data, tables that need it are left out, each with its name, and others are there.
func TestMissingDataIsNoFailure(t *testing.T) {
	var tables, left int
	err := Run(context.Background(), Config{Papers: []string{"fastsgd"}, Data: t.TempDir()}, func(Table) { tables++ }, func(err error) {
		if left++; !errors.Is(err, data.ErrMissing) {
			t.Error(err)
		}
	})
	if err != nil || tables != 0 || left != 5 {
		t.Errorf("%d tables, %d left out, %v", tables, left, err)
	}
}

func TestUnknownPaper(t *testing.T) {
	if err := Run(context.Background(), Config{Papers: []string{"3lc", "qsgd"}}, nil, nil); !errors.Is(err, ErrPaper) {
		t.Errorf("%v, want ErrPaper", err)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Run(ctx, Config{Papers: []string{"3lc"}, Quick: true}, func(Table) {}, func(error) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// 3LC takes less of values that spread wide than of normal ones, and less at a higher s.
func TestBrackets(t *testing.T) {
	ratio := func(s float64, draw func(*rand.Rand) float64) float64 {
		r, err := steadyRatio(context.Background(), s, draw, 60, 10)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	normal, wide := ratio(1, (*rand.Rand).NormFloat64), ratio(1, exponential)
	if higher := ratio(1.5, (*rand.Rand).NormFloat64); normal < 24 || normal > 34 || higher < normal*1.5 {
		t.Errorf("normal values: %v at s=1 and %v at s=1.5", normal, higher)
	}
	if wide < 1.2*normal {
		t.Errorf("the ratio of exponential values is %v, of normal ones %v", wide, normal)
	}
}
