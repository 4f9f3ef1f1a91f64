// Gen bundles three.js once, for all games: three.js is one classic script that
// sets the global THREE, three.module.js gives the same names to those who
// import "three" through the page's import map. Both styles share one copy.
//
//	npm pack three@0.187.0 && tar xzf three-0.187.0.tgz
//	go run ./games/vendor/gen package games/vendor
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gen UNPACKED-PACKAGE OUT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(pkg, out string) error {
	manifest, err := os.ReadFile(filepath.Join(pkg, "package.json"))
	if err != nil {
		return err
	}
	var m struct{ Version, License string }
	if err := json.Unmarshal(manifest, &m); err != nil {
		return err
	}
	entry := filepath.Join(pkg, "build", "three.module.js")
	names, err := exports(entry)
	if err != nil {
		return err
	}
	banner := fmt.Sprintf("/* three.js %s, %s, see three.LICENSE; bundled by games/vendor/gen */", m.Version, m.License)
	res := api.Build(api.BuildOptions{
		Stdin: &api.StdinOptions{
			Contents:   "import * as THREE from './build/three.module.js'; globalThis.THREE = { ...THREE };",
			ResolveDir: pkg,
		},
		Bundle: true, Format: api.FormatIIFE, Target: api.ES2020,
		MinifyWhitespace: true, MinifySyntax: true, MinifyIdentifiers: true,
		LegalComments: api.LegalCommentsNone, Banner: map[string]string{"js": banner},
		Write: true, Outfile: filepath.Join(out, "three.js"),
	})
	if len(res.Errors) > 0 {
		return fmt.Errorf("bundle three: %s", res.Errors[0].Text)
	}
	module := banner + "\nexport const {\n  " + strings.Join(names, ",\n  ") + "\n} = globalThis.THREE;\nexport default globalThis.THREE;\n"
	// One line, so that it reads as what it is: generated.
	module = strings.ReplaceAll(strings.ReplaceAll(module, ",\n  ", ", "), "{\n  ", "{ ")
	if err := os.WriteFile(filepath.Join(out, "three.module.js"), []byte(module), 0o644); err != nil {
		return err
	}
	licence, err := os.ReadFile(filepath.Join(pkg, "LICENSE"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "three.LICENSE"), licence, 0o644)
}

var exported = regexp.MustCompile(`export\s*\{([^}]*)\}`)

// exports lists the names that the package's entry exports.
func exports(entry string) ([]string, error) {
	data, err := os.ReadFile(entry)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range exported.FindAllStringSubmatch(string(data), -1) {
		for _, name := range strings.Split(m[1], ",") {
			name = strings.TrimSpace(name)
			if i := strings.LastIndex(name, " as "); i >= 0 {
				name = name[i+4:]
			}
			if name != "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) < 300 {
		return nil, fmt.Errorf("%s exports only %d names: its form has changed", entry, len(names))
	}
	return names, nil
}
