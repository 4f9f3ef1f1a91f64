package toolkit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/text"
)

// maxFetchBytes bounds what is written to disk; the proxy's own bound is lower.
const maxFetchBytes = 64 << 20

// fetch brings one file from an asset host through the key proxy.
func fetch(ctx context.Context, args []string, env Env) int {
	lang := dreamcore.Lang(env.getenv("DREAMCORE_LANG"))
	if len(args) != 2 || strings.HasPrefix(args[0], "-") || strings.HasPrefix(args[1], "-") {
		fmt.Fprintln(env.Stderr, text.T(lang, "toolkit.usage"))
		return ExitBroken
	}
	path := strings.TrimPrefix(args[0], "https://")
	n, err := fetchTo(ctx, path, args[1], env)
	if err != nil {
		fmt.Fprintln(env.Stderr, text.T(lang, "toolkit.fetch_failed", "path", path, "reason", err.Error()))
		return ExitFail
	}
	fmt.Fprintln(env.Stdout, text.T(lang, "toolkit.fetched", "file", args[1], "bytes", strconv.FormatInt(n, 10)))
	return ExitPass
}

func fetchTo(ctx context.Context, path, file string, env Env) (int64, error) {
	grant, err := os.ReadFile(env.getenv("DREAMCORE_GRANT_FILE"))
	if err != nil {
		return 0, fmt.Errorf("read the grant: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, env.getenv("DREAMCORE_ASSET_URL")+path, nil)
	if err != nil {
		return 0, fmt.Errorf("the address: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(grant)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("ask the proxy: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxFetchBytes))
	if err != nil {
		return 0, fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		var e struct{ Error string }
		if json.Unmarshal(data, &e) != nil || e.Error == "" {
			e.Error = resp.Status
		}
		return 0, fmt.Errorf("%s", e.Error)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return 0, fmt.Errorf("write it: %w", err)
	}
	return int64(len(data)), nil
}
