package envd

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// stat is what /proc says of one process.
type stat struct {
	pid, ppid, session int
	uid                uint32
}

// everyProcess lists /proc. Processes that end meanwhile are left out.
func everyProcess() []stat {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	// An error in the middle leaves what was read, which is all there is to act on.
	names, _ := d.Readdirnames(-1)
	var all []stat
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		data, err := os.ReadFile("/proc/" + n + "/stat")
		if err != nil {
			continue
		}
		// The name in parentheses may hold anything, so look behind the last one.
		f := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		if len(f) < 4 {
			continue
		}
		ppid, err := strconv.Atoi(string(f[1]))
		if err != nil {
			continue
		}
		session, err := strconv.Atoi(string(f[3]))
		if err != nil {
			continue
		}
		s := stat{pid: pid, ppid: ppid, session: session}
		if fi, err := os.Stat("/proc/" + n); err == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				s.uid = st.Uid
			}
		}
		all = append(all, s)
	}
	return all
}

// descendants returns the children of pid, their children and so on.
func descendants(pid int) []int {
	kids := map[int][]int{}
	for _, s := range everyProcess() {
		kids[s.ppid] = append(kids[s.ppid], s.pid)
	}
	var all []int
	for queue := kids[pid]; len(queue) > 0; queue = queue[1:] {
		all = append(all, queue[0])
		queue = append(queue, kids[queue[0]]...)
	}
	return all
}
