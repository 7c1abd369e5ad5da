# Commands whose answers are the same in both shells.
epicsEnvSet("P", "x:")
epicsEnvSet(Q, "$(P)")
dbLoadRecords("shell.db", "P=$(Q)")
iocInit
dbgf $(Q)ao
dbpf("x:ao", "2.5")
dbpf x:ao.PREC 3
dbgf("x:ao.DESC")
dbgf x:bo
dbpf x:bo On
dbgf x:ao.SCAN
dbgf x:longin
dbpf x:longin 0x10
dbgf x:stringin
dbpf x:stringin, "two words"
dbpf 'x:stringin' 'say "hi"'
dbpf x:chars "text"
dbpf x:mbbo one
dbgf x:mbbo
dbl ao
dbl "ao" "VAL DESC"
dbgrep x:*o
dbla x:o*
dbgf x:none
nonsense
echo "answer: $(NONE)"
echo "answer: a\ttab and ${Q=none}"
echo "answer: $(R=default)"
iocshRun("dbgf $(W)", "W=x:ao")
