package envd

import "net/http"

// State is what the host asks a box for every few seconds, and what costs the box
// next to nothing to tell.
type State struct {
	Alone     bool  `json:"alone"` // PID 1 is the only process
	DiskBytes int64 `json:"diskBytes"`
	DiskUsed  int64 `json:"diskUsed"`
}

// ServeState answers with a State, to the host alone.
func (s *Server) ServeState(w http.ResponseWriter, _ *http.Request) {
	st := State{Alone: alone()}
	var err error
	if st.DiskBytes, st.DiskUsed, err = s.diskUse(); err != nil {
		s.log.Error("cannot measure the disk", "reason", err.Error())
		writeFailure(w, http.StatusInternalServerError, "the disk cannot be measured")
		return
	}
	writeJSON(w, http.StatusOK, st)
}
