package picture

import (
	"context"
	"testing"
)

func BenchmarkMake(b *testing.B) {
	for _, q := range []Request{
		{Prompt: "a flying cat, side view, facing right", W: 256, H: 256, Transparent: true},
		{Prompt: "blue dog", W: 128, H: 128, Transparent: true},
		{Prompt: "a forest background", W: 1280, H: 720},
		{Prompt: "gorilla", W: 1024, H: 1024, Transparent: true},
	} {
		b.Run(q.Prompt, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := Make(context.Background(), q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
