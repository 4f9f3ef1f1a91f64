package workspace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"dreamcore"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/tree"
)

// Quiesce ends everything that runs as the agent's user. The snapshot is read
// only after that, so that nothing can swap files under the reader.
func Quiesce(ctx context.Context, sb sandbox.Sandbox) error {
	// kill(-1) reaches every process of the user in one step, which a loop over
	// a process list does not: a fork bomb outruns it.
	// Where it cannot even start (a fork bomb has used up the processes), the loop
	// below decides.
	if _, err := sandbox.Run(ctx, sb, sandbox.Command{Args: []string{"/bin/sh", "-c", "kill -KILL -1"}, Dir: "/", User: sandbox.User}, 1000); err != nil &&
		(ctx.Err() != nil || dreamcore.CodeOf(err) == dreamcore.Lost) {
		return fmt.Errorf("end the agent's processes: %w", err)
	}
	res, err := sandbox.Run(ctx, sb, sandbox.Command{
		Args: []string{"/bin/sh", "-c", "i=0; while pkill -KILL -u user; do i=$((i+1)); [ $i -lt 100 ] || exit 7; done; exit 0"}, Dir: "/", User: sandbox.Root,
	}, 1000)
	if err != nil {
		return fmt.Errorf("look for the agent's processes: %w", err)
	}
	if res.Code != 0 {
		return &tree.Refusal{Reason: tree.Broken, Err: fmt.Errorf("processes of the agent keep coming back (exit code %d)", res.Code)}
	}
	return nil
}

// exitSocket is how the reader ends where there is a socket.
const exitSocket = 9

// Snapshot collects project/ as one tar stream that is treated as hostile: the
// reader in the box may lie too. Call Quiesce first.
func Snapshot(ctx context.Context, sb sandbox.Sandbox, limits tree.Limits) (*tree.Tree, error) {
	var buf bytes.Buffer
	cmd := sandbox.Command{
		// A project/ that is a link would be followed out of the folder, and tar
		// leaves sockets out with a word that nobody reads. Large blocks: each is a
		// write of tar's, and the daemon's way out of the box.
		Args: []string{"/bin/sh", "-c", `[ -d "$0" ] && [ ! -L "$0" ] || exit 1; s=$(find "$0" -type s -print -quit) || exit 1; [ -z "$s" ] || { printf %s "${s#"$0"/}"; exit ` + strconv.Itoa(exitSocket) + `; }; exec tar --format=pax --sort=name --blocking-factor=256 -C "$0" -cf - .`, Project},
		Dir:  "/", User: sandbox.Root, Env: map[string]string{"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
	}
	// Room for the headers of as many files as the tree may have.
	exit, err := sandbox.Copy(ctx, sb, cmd, &buf, limits.TotalBytes+int64(limits.Files)*4096+1<<20)
	switch {
	case dreamcore.CodeOf(err) == dreamcore.Refused:
		return nil, &tree.Refusal{Reason: tree.TreeTooLarge, Detail: fmt.Sprint(limits.TotalBytes)}
	case err != nil:
		return nil, fmt.Errorf("snapshot project: %w", err)
	case exit.Code == exitSocket:
		return nil, &tree.Refusal{Reason: tree.Special, Path: buf.String()}
	case exit.Code != 0 || exit.Signal != "":
		return nil, &tree.Refusal{Reason: tree.Broken, Err: fmt.Errorf("the project folder cannot be read (exit code %d)", exit.Code)}
	}
	return tree.Read(&buf, limits)
}

// ToolRuns reads what the toolkit noted of its runs. The box may have lied: a
// fact for the log, not a proof.
func ToolRuns(ctx context.Context, sb sandbox.Sandbox) []dreamcore.ToolRun {
	data, err := sb.ReadFile(ctx, RunsFile, 1<<20)
	if err != nil {
		return nil
	}
	var runs []dreamcore.ToolRun
	for _, line := range bytes.Split(data, []byte("\n")) {
		var r dreamcore.ToolRun
		if json.Unmarshal(line, &r) != nil || r.Tool == "" || len(runs) == 200 {
			continue
		}
		runs = append(runs, r)
	}
	return runs
}
