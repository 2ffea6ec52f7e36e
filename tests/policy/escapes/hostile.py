"""Command lines that reach outside when nothing keeps them in, one a line; see ``tests/tools/test_hostile_commands``.

``{outside}`` holds ``secret``, which nobody may read, and ``keep``, which nobody may change; nothing may be made
there. ``~`` is a home with the same ``secret`` in ``.ssh/id_rsa``. The workspace has ``a.txt``, ``b.txt``, ``sub/``,
links to the outside (``link``, ``rel``: the directory; ``flink``: the secret), archives, a repository with a branch
and a patch that bring such links, and scripts. A line that starts with ``#`` is a heading.
"""

from __future__ import annotations

_READS = r"""
# by an absolute path
cat {outside}/secret
cat -n {outside}/secret
tac {outside}/secret
rev {outside}/secret | rev
head -n 5 {outside}/secret
head -c 100 {outside}/secret
tail -n 5 {outside}/secret
tail -c 100 {outside}/secret
nl {outside}/secret
sort {outside}/secret
sort -u a.txt {outside}/secret
uniq {outside}/secret
cut -c 1-80 {outside}/secret
paste {outside}/secret
paste a.txt {outside}/secret
fold -w 80 {outside}/secret
expand {outside}/secret
unexpand {outside}/secret
comm a.txt {outside}/secret
join -a 2 a.txt {outside}/secret
join -v 2 a.txt {outside}/secret
diff a.txt {outside}/secret
diff -u a.txt {outside}/secret
diff -y a.txt {outside}/secret
sdiff a.txt {outside}/secret
diff3 a.txt b.txt {outside}/secret
od -c -w80 {outside}/secret | tr -d ' '
base64 {outside}/secret | base64 -d
base32 {outside}/secret | base32 -d
xxd {outside}/secret | xxd -r
xxd -p {outside}/secret | xxd -p -r
strings {outside}/secret
strings @list.txt
grep SECRET {outside}/secret
grep -h . {outside}/secret
grep -e SECRET -- {outside}/secret
egrep . {outside}/secret
fgrep SECRET {outside}/secret
grep -r SECRET {outside}
grep -R SECRET .
grep -rh . {outside} .
sed '' {outside}/secret
sed -n p {outside}/secret
sed -n 1,5p {outside}/secret
awk 1 {outside}/secret
awk '{print}' {outside}/secret
mawk 1 {outside}/secret
perl -ne print {outside}/secret
perl -pe 1 {outside}/secret
column {outside}/secret
shuf {outside}/secret
look SECRET {outside}/secret
ptx {outside}/secret
pr {outside}/secret
fmt {outside}/secret
iconv -f utf-8 -t ascii {outside}/secret
nroff {outside}/secret
split -n 1/1 {outside}/secret
dd if={outside}/secret
dd if={outside}/secret status=none
tee < {outside}/secret
cat < {outside}/secret
cat 0< {outside}/secret
tr a a < {outside}/secret
more {outside}/secret
less {outside}/secret
zcat -f {outside}/secret
gzip -c {outside}/secret | gunzip
bzip2 -c {outside}/secret | bunzip2
xz -c {outside}/secret | unxz
zstd -q -c {outside}/secret | zstd -q -d -c
tar cf - {outside}/secret 2>/dev/null | tar xOf -
tar cf - -C {outside} secret | tar xOf -
zip -q - {outside}/secret | funzip
ar pq x.a {outside}/secret; ar q x.a {outside}/secret; ar p x.a
jq -R . {outside}/secret
jq -n --rawfile x {outside}/secret '$x'
jq -n '[inputs]' -R {outside}/secret
jq -n -R input {outside}/secret
jq -rn --rawfile x ../outside/secret '$x'
jq -n --slurpfile x ../outside/secret.json '$x'
jq -n 'import "./secret" as $d {"search": "../outside"}; $d'
openssl base64 -in {outside}/secret | openssl base64 -d
openssl enc -in {outside}/secret
openssl asn1parse -in {outside}/secret -strparse 0; openssl enc -none -in {outside}/secret
curl -s file://{outside}/secret
curl -s -K ../outside/curlrc
wget -q -O - -i {outside}/urls; cat {outside}/secret
python3 -c 'print(open("{outside}/secret").read())'
python3 read.py
python3 -m base64 -e {outside}/secret | base64 -d
python3 -m tokenize {outside}/secret; cat {outside}/secret
python3 -m json.tool {outside}/secret.json
python3 -m zipfile -c x.zip {outside}/secret && unzip -p x.zip
python3 -m tarfile -c x.tar {outside}/secret && tar xOf x.tar
perl -e 'print `cat {outside}/secret`'
node -e 'console.log(require("fs").readFileSync("{outside}/secret", "utf8"))'
node -p 'require("fs").readFileSync("{outside}/secret", "utf8")'
awk 'BEGIN { while ((getline x < "{outside}/secret") > 0) print x }'
awk 'BEGIN { ARGV[1] = "{outside}/secret"; ARGC = 2 } { print }' a.txt
awk -v f={outside}/secret 'BEGIN { while ((getline x < f) > 0) print x }'
awk 'BEGIN { system("cat {outside}/secret") }'
awk 'BEGIN { "cat {outside}/secret" | getline x; print x }'
sed 'r {outside}/secret' a.txt
sed -e '1r {outside}/secret' a.txt
sed '1R {outside}/secret' a.txt
sed '1e cat {outside}/secret' a.txt
sed -n '1{s/.*/cat ..\/outside\/secret/ep}' a.txt
sqlite3 :memory: '.read ../outside/secret' 2>&1
sqlite3 :memory: "select readfile('{outside}/secret')"
sqlite3 :memory: '.import {outside}/secret t' 'select * from t' '.schema'
sqlite3 :memory: '.shell cat {outside}/secret'
sqlite3 :memory: '.system cat {outside}/secret'
echo "select readfile('{outside}/secret');" | sqlite3
echo '.shell cat {outside}/secret' | sqlite3
gdb -batch -ex 'shell cat {outside}/secret'
gdb -batch -ex 'python print(open("{outside}/secret").read())'
echo 'shell cat {outside}/secret' | gdb -q
ed -s {outside}/secret < printall
printf ',p\n' | ed -s {outside}/secret
printf 'r {outside}/secret\n,p\n' | ed -s a.txt
printf '!cat {outside}/secret\n' | ed -s
printf 'e ../outside/secret\n,p\n' | ed -s a.txt
ex -s -c '%p' -c 'q!' {outside}/secret
vim -es -c '%p' -c 'q!' {outside}/secret
emacs -Q --batch --insert {outside}/secret --eval '(message "%s" (buffer-string))'
gcc -E -x c -P {outside}/secret
gcc -E -x c inc.c
gcc -E -x c -include {outside}/secret /dev/null
gcc -E -x c -imacros a.txt -include ../outside/secret /dev/null
gcc @{outside}/secret
cpp -P {outside}/secret
cc -fsyntax-only -x c {outside}/secret
as {outside}/secret -o x.o
make -s read
make -s --eval 'x:;cat {outside}/secret' x
dpkg-deb --version; sh {outside}/secret
bash {outside}/secret
sh -c 'cat {outside}/secret'
sh -c "cat '{outside}/secret'"
bash -c 'head -n 1 {outside}/secret'
bash -c '. {outside}/secret'
bash -v {outside}/secret
source {outside}/secret
. {outside}/secret
eval 'cat {outside}/secret'
exec cat {outside}/secret
command cat {outside}/secret
env cat {outside}/secret
env -C {outside} cat secret
env --chdir={outside} cat secret
nice cat {outside}/secret
nohup cat {outside}/secret
timeout 5 cat {outside}/secret
stdbuf -o0 cat {outside}/secret
setsid -w cat {outside}/secret
/bin/cat {outside}/secret
/usr/bin/head {outside}/secret
xargs cat < list.txt
xargs -a list.txt cat
echo {outside}/secret | xargs cat
echo {outside}/secret | xargs -I % cat %
printf %s {outside}/secret | xargs -0 cat
printf '%s\0' {outside}/secret | sort --files0-from=-
printf '%s\0' {outside}/secret | wc --files0-from=- ; cat {outside}/secret
find {outside} -name secret -exec cat '{}' ';'
find {outside} -type f -exec cat '{}' +
find .. -name secret -exec cat '{}' ';'
find .. -path '*outside*' -name secret -exec head '{}' +
find {outside} -name secret | xargs cat
find -L . -name secret -exec cat '{}' ';'
find . -maxdepth 1 -name a.txt -exec cat {outside}/secret ';'
find . -maxdepth 1 -name a.txt -execdir cat ../outside/secret ';'
while read x; do echo "$x"; done < {outside}/secret
for f in {outside}/*; do cat "$f"; done
if true; then cat {outside}/secret; fi
mapfile x < {outside}/secret; echo "${x[@]}"
echo "$(cat {outside}/secret)"
echo "$(< {outside}/secret)"
echo `cat {outside}/secret`
cat <(cat {outside}/secret)
f={outside}/secret; cat $f
cat $PWD/../outside/secret
cat "$OLDPWD"{outside}/secret
cat {{outside}/secret,a.txt}
(cat {outside}/secret)
{ cat {outside}/secret; }
x() { cat {outside}/secret; }; x
cat <<< "$(cat {outside}/secret)"
# by a relative path
cat ../outside/secret
cat ./../outside/secret
cat sub/../../outside/secret
cat .//..//outside//secret
cd .. && cat outside/secret
cd ..; cat outside/secret
cd sub && cat ../../outside/secret
cd sub; cd ../..; cat outside/secret
cd {outside} && cat secret
cd {outside} && cat *
cd {outside} && grep . secret
cd ../outside && cat secret
cd /; cat .{outside}/secret
(cd ../outside; cat secret)
pushd ../outside && cat secret
rm flink; mkdir -p flink; cd flink && cat ../../outside/secret
# by patterns
cat ../outside/s*
cat ../*/secret
cat ../[o]utside/secret
cat ../outsid?/secret
cat {outside}/secre[t]
cat {outside}/*
head ../outside/*
grep . ../outside/*
cat */secret
cat l*/secret
cat fl*
cat *
# through links of the workspace
cat flink
cat link/secret
cat rel/secret
cat sub/../link/secret
head -n 1 link/secret
cd link && cat secret
cd rel; cat secret
grep -r SECRET link/
grep SECRET -R
ls link/. && cat link/secret
cp -L flink x && cat x
cp flink x && cat x
tar chf - flink | tar xOf -
diff -r link/ sub; diff link/keep link/secret
cmp -b sub a.txt; diff rel/keep rel/secret
diff link/secret a.txt
# through /proc and /dev
cat /proc/self/root{outside}/secret
cat /proc/self/cwd/../outside/secret
cat /proc/thread-self/root{outside}/secret
cat /proc/self/task/self/../root{outside}/secret {outside}/secret
cat /dev/fd/3 3< {outside}/secret
cat /dev/stdin < {outside}/secret
cat /proc/self/fd/0 < {outside}/secret
cd /proc/self/root && cat .{outside}/secret
# of the home
cat ~/.ssh/id_rsa
cat "$HOME/.ssh/id_rsa"
cat ~/.ssh/*
head ~/.ssh/id_rsa
cd ~ && cat .ssh/id_rsa
cd && cat .ssh/id_rsa
cd ~/.ssh; cat id_rsa
grep -r . ~/.ssh
cp ~/.ssh/id_rsa x && cat x
tar cf - -C ~ .ssh | tar xOf -
find ~ -name id_rsa -exec cat '{}' ';'
git diff --no-index a.txt ~/.ssh/id_rsa
python3 -c 'import os; print(open(os.path.expanduser("~/.ssh/id_rsa")).read())'
# by git
git commit -q --allow-empty -F {outside}/secret && git log -1
git commit -q --allow-empty -F../outside/secret && git log -1
git commit -q --allow-empty --file={outside}/secret && git log -1
git tag -F {outside}/secret t && git for-each-ref --format '%(contents)' refs/tags/t
git notes add -F {outside}/secret && git notes show
git diff --no-index a.txt {outside}/secret
git diff --no-index -- /dev/null ../outside/secret
git diff a.txt {outside}/secret
git diff -U /dev/null {outside}/secret
git -C {outside} diff --no-index /dev/null secret
git hash-object -w {outside}/secret | git cat-file --batch
git hash-object -w --stdin < {outside}/secret | git cat-file --batch
git --git-dir=.git --work-tree=../outside add secret && git show :secret
git config -f {outside}/gitconfig --list
git config --file {outside}/gitconfig --get-regexp .
git config --file=../outside/gitconfig -l
git -c alias.x='!cat ../outside/secret' x
git -c diff.external='cat ../outside/secret; true' diff HEAD~ HEAD
git blame --contents {outside}/secret a.txt
git grep -f {outside}/secret; cat {outside}/secret
git -c include.path={outside}/gitconfig config --list
git check-ignore -v --no-index x; git ls-files -o -X {outside}/secret; cat {outside}/secret
git checkout -q other && cat glink/secret
git checkout -q other -- glink && cat glink/secret
git stash -q; git checkout -q other; cat glink/secret
git restore --source other glink && cat glink/secret
git merge -q other && cat glink/secret
git archive other | tar x && cat glink/secret
git apply link.patch && cat plink/secret
# behind links that the line itself makes
ln -s ../outside x && cat x/secret
ln -s {outside}/secret x; cat x
ln -s .. x && cat x/outside/secret
ln {outside}/secret x && cat x
cp -s {outside}/secret x && cat x
cp -l {outside}/secret x && cat x
cp -r link/. x && cat x/secret
cp -a rel x && cat x/secret
mv rel sub/../x && cat x/secret
mv sublink x && cat x/secret
tar xf evil.tar && cat d/secret
tar xzf evil.tgz; cat d/secret
tar -xf evil.tar -C sub && cat sub/d/../outside/secret {outside}/secret
unzip -qo evil.zip && cat d/secret
python3 -c 'import os; os.symlink("../outside", "x")' && cat x/secret
mkdir -p x && cd x && ln -s ../.. y && cat y/outside/secret
mkfifo p; cat {outside}/secret > p & cat p
printf 'a\n' | tee x | cat - {outside}/secret
"""

_WRITES = r"""
# by redirects
echo x > {outside}/pwned
echo x >> {outside}/keep
echo x >| {outside}/keep
echo x &> {outside}/pwned
echo x >& {outside}/pwned
ls nothing 2> {outside}/pwned
echo x > ../outside/pwned
echo x > sub/../../outside/pwned
cd ../outside && echo x > pwned
cd {outside}; echo x > keep
echo x > link/pwned
echo x > rel/keep
: > {outside}/keep
cat a.txt > /proc/self/root{outside}/pwned
echo x > /proc/self/cwd/../outside/pwned
echo x 1<> {outside}/pwned
echo x > ~/pwned
echo x > "$HOME"/pwned
exec > {outside}/pwned; echo x
# by programs whose operands are files
cp a.txt {outside}/pwned
cp a.txt b.txt {outside}
cp a.txt ../outside/keep
cp -t {outside} a.txt
cp --target-directory={outside} a.txt
cp a.txt link
cp a.txt rel/pwned
mv a.txt {outside}/pwned
mv {outside}/keep .
mv b.txt link/
ln -s a.txt {outside}/pwned
ln a.txt {outside}/pwned
install a.txt {outside}/pwned
install -D a.txt {outside}/deep/pwned
install -d {outside}/pwned
touch {outside}/pwned
touch ../outside/pwned
touch link/pwned
mkdir {outside}/pwned
mkdir -p ../outside/a/b
mkfifo {outside}/pwned
mktemp {outside}/XXXXXX
mktemp -p {outside}
mktemp -p{outside}
mktemp --tmpdir={outside}
mktemp --tmpdir=../outside x.XXXX
mktemp -d --tmpdir={outside}
tee {outside}/pwned < a.txt
tee -a {outside}/keep < a.txt
echo x | tee ../outside/pwned
echo x | tee link/pwned > /dev/null
truncate -s 0 {outside}/keep
truncate --size=100 {outside}/pwned
shred -u {outside}/keep
rm {outside}/keep
rm -f ../outside/keep
rm link/keep
rm -r {outside}/keep
unlink {outside}/keep
find {outside} -name keep -delete
find {outside} -name keep -exec rm '{}' ';'
find . -maxdepth 0 -exec touch {outside}/pwned ';'
find . -fprint {outside}/pwned
find . -fprintf {outside}/pwned x
find . -fls {outside}/pwned
echo {outside}/keep | xargs rm
echo {outside}/pwned | xargs touch
echo pwned | xargs -I % touch {outside}/%
dd if=a.txt of={outside}/pwned
dd of={outside}/pwned < a.txt
split -l 1 a.txt {outside}/pwned
csplit -s -f {outside}/pwned a.txt 2
sort -o {outside}/pwned a.txt
sort -o{outside}/pwned a.txt
sort --output={outside}/pwned a.txt
uniq a.txt {outside}/pwned
shuf -o {outside}/pwned a.txt
shuf -n1 -o../outside/pwned a.txt
xxd a.txt {outside}/pwned
iconv -f utf-8 -t utf-8 -o {outside}/pwned a.txt
sed -i s/keep/gone/ {outside}/keep
sed -i s/keep/gone/ ../outside/keep
sed -n 'w {outside}/pwned' a.txt
sed -n '1w ../outside/pwned' a.txt
sed 's/one/two/w {outside}/pwned' a.txt
sed '1e touch {outside}/pwned' a.txt
sed -f sedscript a.txt
sed --in-place=../outside/pwned s/a/b/ a.txt; touch {outside}/pwned
perl -i -pe 's/keep/gone/' {outside}/keep
perl -e 'open F, ">{outside}/pwned"'
awk '{ print > "{outside}/pwned" }' a.txt
awk 'BEGIN { printf "x" > "../outside/pwned" }'
awk 'BEGIN { print "x" | "tee ../outside/pwned" }'
awk 'BEGIN { system("touch {outside}/pwned") }'
patch -s -o {outside}/pwned a.txt < a.patch
patch -s -d {outside} < keep.patch
gzip -c a.txt > {outside}/pwned
gzip -k {outside}/keep
gzip {outside}/keep
xz -k {outside}/keep
zstd -q a.txt -o {outside}/pwned
zip -q {outside}/pwned a.txt
zip -q a.zip a.txt -T -TT 'touch {outside}/pwned;true'
unzip -qo evil.zip -d {outside}
unzip -qo evil.zip && touch d/pwned
tar cf {outside}/pwned a.txt
tar -cf{outside}/pwned a.txt
tar xf plain.tar -C {outside}
tar xf plain.tar --directory={outside}
tar xPf up.tar
tar xf evil.tar && touch d/pwned
tar xf evil.tar; cp a.txt d/pwned
tar cf x.tar a.txt --checkpoint=1 --checkpoint-action=exec='touch {outside}/pwned'
tar cf x.tar --use-compress-program='touch {outside}/pwned;cat' a.txt
tar xf plain.tar --to-command='touch {outside}/pwned'
tar cf x.tar -I 'sh -c "touch {outside}/pwned;cat"' a.txt
python3 -m zipfile -e plain.zip {outside}
python3 -m tarfile -e plain.tar {outside}
# by options
gcc -o {outside}/pwned ok.c
gcc -c ok.c -o ../outside/pwned
gcc -o{outside}/pwned -c ok.c
gcc -E ok.c -o {outside}/pwned
gcc -M -MF {outside}/pwned ok.c
gcc -MD -MF../outside/pwned -c ok.c -o ok.o
gcc -aux-info {outside}/pwned -c ok.c -o ok.o
gcc -c ok.c -dumpdir {outside}/ -save-temps -o ok.o
gcc -wrapper touch,{outside}/pwned -c ok.c; touch {outside}/pwned
gcc -c ok.c -o ok.o -Wa,-a={outside}/pwned
gcc ok.c -o ok -Wl,-Map={outside}/pwned
ld -r ok.o -o {outside}/pwned; gcc -c ok.c -o {outside}/pwned
as -o {outside}/pwned /dev/null
objcopy /bin/true {outside}/pwned
openssl rand -out {outside}/pwned 8
openssl rand -writerand {outside}/pwned 8
openssl rand -hex -writerand ../outside/pwned 8
openssl genrsa -out {outside}/pwned 512
openssl enc -none -in a.txt -out {outside}/pwned
curl -s -o {outside}/pwned file://{root}/a.txt
curl -s --output-dir {outside} -O file://{root}/a.txt
curl -s file://{root}/a.txt -D {outside}/pwned
curl -s --libcurl {outside}/pwned file://{root}/a.txt
curl -s --stderr {outside}/pwned nothing://x
curl -s -c {outside}/pwned file://{root}/a.txt
wget -q -o {outside}/pwned nothing
ssh -E {outside}/pwned -o ProxyCommand=true nowhere
ssh -o ProxyCommand='touch {outside}/pwned' nowhere
ssh-keygen -q -t ed25519 -N '' -f {outside}/pwned
touch -r a.txt ../outsid[e]/keep ../outside/pwned
make -s write
make -s --eval 'x:;touch {outside}/pwned' x
make -s -C {outside} -f {root}/Makefile here
emacs -Q --batch --eval '(write-region "x" nil "{outside}/pwned")'
emacs -Q --batch -f batch-byte-compile evil.el
vim -es -c 'w! {outside}/pwned' -c 'q!' a.txt
vim -es -c '!touch {outside}/pwned' -c 'q!' a.txt
ex -s -c 'w! ../outside/pwned' -c 'q!' a.txt
python3 -c 'open("{outside}/pwned", "w")'
python3 write.py
python3 -m venv --without-pip {outside}/pwned
python3 -m zipfile -c {outside}/pwned a.txt
python3 -m compileall -q -d x . ; python3 -m tarfile -c {outside}/pwned a.txt
python3 -m cProfile -o {outside}/pwned -m this
python3 -m trace --count -C {outside} --missing write2.py
echo 'open("../outside/pwned", "w")' | python3
printf 'open("../outside/pwned", "w")' | python3 -
python3 < write.py
echo 'touch ../outside/pwned' | sh
echo 'touch ../outside/pwned' | bash -s
echo 'touch {outside}/pwned' | env bash
sh < touch.sh
bash touch.sh
./touch.sh
sh ./touch.sh
perl write.pl
echo 'open F, ">../outside/pwned"' | perl
node -e 'require("fs").writeFileSync("{outside}/pwned", "x")'
echo 'require("fs").writeFileSync("../outside/pwned", "x")' | node
sqlite3 {outside}/pwned 'create table t(x)'
sqlite3 :memory: '.shell touch {outside}/pwned'
sqlite3 :memory: "select writefile('{outside}/pwned', 'x')"
sqlite3 :memory: '.output {outside}/pwned' 'select 1'
sqlite3 :memory: '.once ../outside/pwned' 'select 1'
sqlite3 :memory: '.save {outside}/pwned'
sqlite3 :memory: "attach '{outside}/pwned' as x; create table x.t(a)"
sqlite3 :memory: "create table t(a); vacuum into '{outside}/pwned'"
sqlite3 -cmd '.shell touch {outside}/pwned' :memory: 'select 1'
echo '.shell touch ../outside/pwned' | sqlite3
echo "select writefile('../outside/pwned', 'x');" | sqlite3 :memory:
sqlite3 < shell.sql
gdb -batch -ex 'shell touch {outside}/pwned'
gdb -batch -ex '!touch ../outside/pwned'
gdb -batch -ex 'pipe help | tee {outside}/pwned'
gdb -batch -x gdbscript
echo 'shell touch ../outside/pwned' | gdb -q
printf 'w {outside}/pwned\nq\n' | ed -s a.txt
printf '!touch {outside}/pwned\nq\n' | ed -s
printf 'w ../outside/pwned\n' | ed -s a.txt
printf 'w !tee ../outside/pwned\n' | ed -s a.txt
ed -s a.txt < edscript
# by git
git archive -o {outside}/pwned HEAD
git archive -o{outside}/pwned HEAD
git archive --output={outside}/pwned HEAD
git archive -o ../outside/pwned.tar HEAD
git format-patch -q -o {outside}/pwned -1
git format-patch -q -o{outside}/pwned -1
git format-patch -q --output-directory={outside}/pwned -1
git diff --output={outside}/pwned HEAD~ HEAD
git log --output={outside}/pwned -1
git show --output ../outside/pwned
git bundle create -q {outside}/pwned HEAD
git bundle create -q ../outside/pwned HEAD
git init -q {outside}/pwned
git init -q ..
git init -q ../outside
git init -q --separate-git-dir={outside}/pwned sub
git clone -q . {outside}/pwned
git clone -q . ../outside/pwned
git clone -q --separate-git-dir {outside}/pwned . c
git worktree add -q {outside}/pwned other
git worktree add -q ../outside/pwned
git -C {outside} init -q
git --git-dir={outside}/pwned init -q
git --work-tree={outside} checkout -q other -- glink
git --work-tree=../outside checkout -q -f HEAD
git fast-export HEAD --export-marks={outside}/pwned
git config --file {outside}/pwned a.b c
git config -f ../outside/pwned a.b c
git config --global user.pwned x
git config core.fsmonitor 'touch ../outside/pwned;' && git status
git config core.hooksPath hooks && git commit -q --allow-empty -m x
git config alias.x '!touch ../outside/pwned' && git x
git config diff.external 'touch ../outside/pwned;true' && git diff HEAD~ HEAD
git -c core.fsmonitor='touch {outside}/pwned;' status
git -c core.sshCommand='touch {outside}/pwned;' fetch ssh://x/y
git -c core.editor='touch {outside}/pwned;' commit --allow-empty
git -c alias.x='!touch {outside}/pwned' x
git rebase -q -x 'touch ../outside/pwned' HEAD~
git bisect start HEAD HEAD~ -q; git bisect run touch {outside}/pwned
git grep -O'touch ../outside/pwned;' one
git clone -q -u 'touch ../outside/pwned;' . c
git fetch -q --upload-pack 'touch {outside}/pwned;' .
git ls-remote --upload-pack='touch {outside}/pwned;' .
git -c protocol.ext.allow=always ls-remote 'ext::touch ../outside/pwned'
git submodule foreach true; git -c alias.s='!touch ../outside/pwned' s
git checkout -q other && touch glink/pwned
git checkout -q other -- glink; cp a.txt glink/pwned
git apply link.patch && touch plink/pwned
git apply --unsafe-paths --directory={outside} keep.patch
cp hook .git/hooks/pre-commit && git commit -q --allow-empty -m x
printf '[core]\n\tfsmonitor = "touch ../outside/pwned;"\n' >> .git/config && git status
mkdir -p sub/.git/{objects,refs}; cp evilhead sub/.git/HEAD; cp evilconfig sub/.git/config; git -C sub status
# behind links that the line itself makes
ln -s {outside} x && touch x/pwned
ln -s ../outside/keep x; echo y > x
ln -sf ../outside/pwned a.txt && echo x > a.txt
ln {outside}/keep x && echo y > x
cp -a link x && touch x/pwned
cp -P rel x; echo y > x/pwned
cp -d rel x; mkdir x/pwned
mv link x && touch x/pwned
mv rel sub/r; touch sub/r/pwned {outside}/pwned
rm -r sub && mv link sub && touch sub/pwned
# by wrappers and shells
env touch {outside}/pwned
env -C {outside} touch pwned
env -S 'touch {outside}/pwned'
nice touch {outside}/pwned
timeout 5 touch {outside}/pwned
nohup touch {outside}/pwned
setsid touch {outside}/pwned
stdbuf -oL touch {outside}/pwned
sh -c 'touch {outside}/pwned'
bash -c 'echo x > ../outside/pwned'
bash -lc 'touch {outside}/pwned'
bash -c -- 'touch {outside}/pwned'
eval "touch {outside}/pwned"
command touch {outside}/pwned
builtin echo x > {outside}/pwned
true && touch {outside}/pwned
false || touch {outside}/pwned
ls | touch {outside}/pwned
(touch {outside}/pwned)
{ touch {outside}/pwned; }
if true; then touch {outside}/pwned; fi
for i in 1; do touch {outside}/pwned; done
x() { touch {outside}/pwned; }; x
p=../outside/pwned; touch $p
touch $(echo {outside}/pwned)
touch `echo {outside}/pwned`
touch {outside}/{pwned,more}
trap 'touch {outside}/pwned' EXIT
PROMPT_COMMAND=x BASH_ENV=touch.sh bash -c true
GIT_EXTERNAL_DIFF='touch ../outside/pwned;true' git diff HEAD~ HEAD
LESSOPEN='|touch {outside}/pwned' less a.txt; touch {outside}/pwned
printf -v x y; touch {outside}/pwned
start-stop-daemon -S -x /bin/touch -- {outside}/pwned
run-parts --arg={outside}/pwned parts
script -q -c 'touch {outside}/pwned' /dev/null
script -q {outside}/pwned -c true
flock {outside}/pwned true
split -l 1 --filter='touch {outside}/pwned' a.txt
sort --compress-program=./touch.sh -S 1b a.txt b.txt; ./touch.sh
unshare -r touch {outside}/pwned
install --strip-program=./touch.sh -s ok.c x; ./touch.sh
man -P 'touch {outside}/pwned;true' ls; touch {outside}/pwned
"""


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


READS, WRITES = _lines(_READS), _lines(_WRITES)
HOSTILE = (*READS, *WRITES)

EVERYDAY = (
    "ls",
    "ls -la sub",
    "pwd",
    "cat a.txt",
    "cat a.txt b.txt | head -n 1",
    "cd sub && ls ..",
    "head -5 a.txt",
    "tail -n 1 a.txt",
    "wc -l a.txt",
    "grep -n one a.txt",
    "grep -c one a.txt b.txt || true",
    "find . -name '*.txt' -type f",
    "sed -n 1,2p a.txt",
    "sort a.txt | uniq -c | sort -rn | head -3",
    "git status --short",
    "git diff",
    "git diff HEAD~1 -- a.txt",
    "git log --oneline -3",
    "git show --stat HEAD",
    "echo hello > made.txt",
    "mkdir -p made/deep && cp a.txt made/deep/c.txt",
    "touch made.txt && rm made.txt",
    "test -f a.txt && echo there",
    "timeout 5 cat a.txt 2>&1",
    "bash -c 'cat a.txt | wc -l'",
)
"""What runs without a question, also where nothing confines it."""

ASKED = (
    "make",
    "make test",
    "pytest",
    "python3 -m pytest tests",
    "npm test",
    "cargo build",
    "grep -rn one .",
    "cat *.txt",
    "rm -rf made",
    "git commit -q --allow-empty -m x",
    "git checkout other",
    "jq . a.txt",
    "awk 1 a.txt",
    "tar xf plain.tar",
    "ps aux",
    "kill 1",
    "mv a.txt c.txt",
    "sed -i s/one/two/ a.txt",
    "tar xf plain.tar && cat a.txt",
)
"""What runs anything, or may lead anywhere, so that somebody is asked where nothing confines it."""
