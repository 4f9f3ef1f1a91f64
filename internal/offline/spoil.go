package offline

// spoil misbehaves in the build turn. It returns last words where the turn is
// to end there, without having been judged.
func (j *job) spoil() (string, error) {
	command := map[Sabotage]string{
		SabotageBreak:  breakCode,
		SabotageRuin:   breakCode,
		SabotageDeaf:   deafenPage,
		SabotageSleep:  "sleep 86400",
		SabotageCrash:  "kill -9 $PPID",
		SabotageFill:   "cat /dev/zero > " + project + "/fill.bin; cat /dev/zero > /tmp/fill.bin",
		SabotageVanish: "rm -rf " + project + "/*",
	}[j.sabotage]
	if command == "" {
		return "", nil
	}
	if _, _, err := j.shell(j.say("sabotage", "mode", string(j.sabotage)), command); err != nil {
		return "", err
	}
	return j.say("sabotage.done", "mode", string(j.sabotage)), nil
}

// breakCode makes the game's first script unparsable.
const breakCode = `cd ` + project + ` && f=game.js && { [ -e $f ] || f=$(ls *.js | head -n 1); } && printf '\nfunction ( {\n' >> "$f"`

// deafenPage stops every input before the game sees it.
const deafenPage = `cd ` + project + ` && sed -i '0,/<script/s//<script>for (const t of ["keydown","keyup","pointerdown","pointermove","pointerup","mousedown","mousemove","mouseup","touchstart","touchmove","touchend","click"]) window.addEventListener(t, (e) => { if (e.target.closest === undefined || !e.target.closest("button")) e.stopImmediatePropagation(); }, true);<\/script>\n<script/' ` + pageFile
