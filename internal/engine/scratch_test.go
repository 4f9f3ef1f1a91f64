package engine_test
import ("testing";"os";"fmt";"dreamcore/internal/engine/enginetest";"dreamcore/internal/sandbox")
func TestScratch(t *testing.T){ e:=enginetest.Start(t); sb:=boot(t,e); u:=os.Getenv("U"); res,err:=sandbox.Run(ctxOf(t),sb,sandbox.Command{Args:[]string{"bash","-c",os.Getenv("S")},User:u},1<<20); fmt.Printf("%s\n%s\n%+v %v\n",res.Stdout,res.Stderr,res.Exit,err)}
