// Package wire checks what our client and our engine say to each other against
// the types that E2B's own npm package ships: TypeScript's compiler is the judge.
package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"dreamcore/internal/sandbox/e2b/e2btest"
	"dreamcore/test/node"
)

// header is the beginning of the program: short names for the types of one
// operation's body, query and answers.
const header = `import type { paths } from "e2b"
type Op<P extends keyof paths, M extends keyof paths[P]> = paths[P][M]
type Json<T> = T extends { content: { "application/json": infer J } } ? J : undefined
type Body<O> = O extends { requestBody?: infer B } ? Json<NonNullable<B>> : never
type Query<O> = O extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never
type Answers<O> = O extends { responses: infer R } ? R : never
`

// noPath is what Go's router answers where it knows no path.
const noPath = "404 page not found"

var boxPath = regexp.MustCompile(`/sandboxes/[^/]+`)

// Program writes exchanges as a TypeScript program that is right exactly if
// each request and each answer is of the type of its operation.
func Program(exchanges []e2btest.Exchange) string {
	lines := map[string]bool{}
	for _, x := range exchanges {
		op := fmt.Sprintf("Op<%s, %s>", quote(boxPath.ReplaceAllString(x.Path, "/sandboxes/{sandboxID}")), quote(strings.ToLower(x.Method)))
		if len(x.Body) > 0 {
			lines[fmt.Sprintf("Body<%s> = %s", op, x.Body)] = true
		}
		if len(x.Query) > 0 {
			lines[fmt.Sprintf("Query<%s> = %s", op, query(x))] = true
		}
		answer := strings.TrimSpace(string(x.Answer))
		if answer == noPath {
			continue // of a router before version 2, not of the protocol
		}
		if answer == "" {
			answer = "undefined"
		}
		// An index that is not there is an error of the compiler.
		lines[fmt.Sprintf("Json<Answers<%s>[%d]> = %s", op, x.Status, answer)] = true
	}
	var b strings.Builder
	b.WriteString(header)
	for i, l := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&b, "export const x%d: %s\n", i, l)
	}
	return b.String()
}

// query is a query as an object: a number where it is one, the list of states
// as a list.
func query(x e2btest.Exchange) string {
	m := map[string]any{}
	for k, vs := range x.Query {
		m[k] = vs[0]
		switch k {
		case "state":
			m[k] = strings.Split(vs[0], ",")
		case "limit":
			m[k] = json.Number(vs[0])
		}
	}
	return quote(m)
}

func quote(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("wire: %v", err)) // strings and numbers always encode
	}
	return string(data)
}

// Compile lets TypeScript judge a program and returns its complaints, "" for
// none.
func Compile(tb testing.TB, program string) string {
	tb.Helper()
	dir := node.Folder(tb, os.DirFS("testdata/program"))
	if err := os.WriteFile(filepath.Join(dir, "wire.ts"), []byte(program), 0o644); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(node.Program(tb), filepath.Join(dir, "node_modules/typescript/bin/tsc"), "--project", dir, "--pretty", "false")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	if len(out) == 0 {
		tb.Fatal(err)
	}
	return string(out)
}
