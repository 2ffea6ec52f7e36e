(str "a" 1 :b nil true 2.5) => "a1:btrue2.5"
(str) => ""
(str 42) => "42"
(str [1 "a" nil]) => "[1 \"a\" nil]"
(str {:a 1}) => "{:a 1}"
(str nil) => ""
(str #{2 1}) => "#{1 2}"
(pr-str "a") => "\"a\""
(pr-str nil :a) => "nil :a"
(pr-str) => ""
(join ", " ["a" "b"]) => "a, b"
(join ["a" 1 nil :k]) => "a1:k"
(join "-" []) => ""
(join "," #{2 1}) => "1,2"
(join 0 [1 2]) => "102"
(str/join "," [1 2]) => "1,2"
(clojure.string/join [1 2]) => "12"
(join "," 5) !! join: expects a collection, got an integer
(subs "hello" 1 3) => "el"
(subs "hello" 2) => "llo"
(subs "abc" 5) => ""
(subs "abc" 2 1) => ""
(subs "abc" -5 2) => "ab"
(subs "añ😀x" 1 3) => "ñ😀"
(subs nil 1) !! subs: expects a string, got nil
(subs "abc" "1") !! subs: expects an integer, got a string
(split "a,b,,c" ",") => ["a" "b" "" "c"]
(split "abc" "") => ["a" "b" "c"]
(split "a.b" ".") => ["a" "b"]
(split "" ",") => [""]
(split "a,b,c" "," 2) => ["a" "b,c"]
(split "a,b,c" "," 100000000000000000000) => ["a" "b" "c"]
(split "abc" "" 2) => ["a" "bc"]
(split "a1b22c" #"[0-9]+") => ["a" "b" "c"]
(split "a1b2c3" #"[0-9]" 2) => ["a" "b2c3"]
(split "abc" #"") => ["a" "b" "c"]
(split "a,b,,," #",") => ["a" "b"]
(split "a,b,,," #"," 0) => ["a" "b"]
(split "a,b,,," #"," -1) => ["a" "b" "" "" ""]
(split "a1b22" #"[0-9]+" -1) => ["a" "b" ""]
(str/split "a b" #"\s") => ["a" "b"]
(split nil ",") !! split: expects a string, got nil
(split "a" 1) !! split: expects a string, got an integer
(split-lines "a\nb\r\nc") => ["a" "b" "c"]
(split-lines "") => []
(split-lines "a\n\nb\n\n") => ["a" "" "b"]
(split-lines 5) !! split-lines: expects a string
(replace "hello" "l" "L") => "heLLo"
(replace "a.b" "." "-") => "a-b"
(replace "a1b2" #"[0-9]" "#") => "a#b#"
(replace "john smith" #"(\w+) (\w+)" "$2 $1") => "smith john"
(replace "a1" #"[0-9]" (fn [m] (str "<" m ">"))) => "a<1>"
(replace "x" #"x" "\\$1") => "$1"
(str/replace "aa" "a" "b") => "bb"
(replace "x" #"x" "$1") !! replace: the pattern has no group 1
(replace "x" "x" nil) !! replace: expects a string, got nil
(replace [1] 1 2) !! replace: expects a string, got a vector
(replace-first "hello" "l" "L") => "heLlo"
(replace-first "a1b2" #"[0-9]" "#") => "a#b2"
(replace-first "abc" "x" "y") => "abc"
(replace-first 1 "x" "y") !! replace-first: expects a string
(upcase "aß") => "ASS"
(upcase "") => ""
(upcase :a) !! upper-case: expects a string, got a keyword
(upper-case "ab") => "AB"
(str/upper-case "x") => "X"
(upper-case nil) !! upper-case: expects a string, got nil
(downcase "AB") => "ab"
(downcase "") => ""
(downcase 1) !! lower-case: expects a string
(lower-case "ÄB") => "äb"
(clojure.string/lower-case "X") => "x"
(lower-case [1]) !! lower-case: expects a string
(capitalize "hELLO") => "Hello"
(capitalize "") => ""
(capitalize 1) !! capitalize: expects a string
(trim "  a b \n") => "a b"
(trim "") => ""
(str/trim " a") => "a"
(trim nil) !! trim: expects a string, got nil
(triml "  a ") => "a "
(triml "a") => "a"
(triml 1) !! triml: expects a string
(trimr " a  ") => " a"
(trimr "") => ""
(trimr 1) !! trimr: expects a string
(trim-newline "a\r\n") => "a"
(trim-newline "a\nb") => "a\nb"
(trim-newline 1) !! trim-newline: expects a string
(reverse-string "abc") => "cba"
(reverse-string "añ") => "ña"
(str/reverse "ab") => "ba"
(reverse-string [1]) !! reverse-string: expects a string
(blank? "") => true
(blank? " \n") => true
(blank? nil) => true
(blank? "a") => false
(blank? 1) !! blank?: expects a string
(starts-with? "hello" "he") => true
(starts-with? "hello" "") => true
(str/starts-with? "a" "b") => false
(starts-with? nil "a") !! starts-with?: expects a string, got nil
(ends-with? "hello" "lo") => true
(ends-with? "hello" "x") => false
(ends-with? "a" 1) !! ends-with?: expects a string
(includes? "hello" "ell") => true
(includes? "hello" "") => true
(str/includes? "a" "b") => false
(includes? ["a"] "a") !! includes?: expects a string, got a vector
(index-of "hello" "l") => 2
(index-of "hello" "l" 3) => 3
(index-of "ñ😀x" "x") => 2
(index-of "a" "x") => nil
(index-of nil "x") !! index-of: expects a string
(last-index-of "hello" "l") => 3
(last-index-of "a" "x") => nil
(last-index-of "a" 1) !! last-index-of: expects a string
(name :a) => "a"
(name "a") => "a"
(name 1) !! name: expects a keyword or string
(keyword "a") => :a
(keyword :a) => :a
(keyword nil) => nil
(keyword "") !! keyword: a name cannot be empty
(keyword 1) !! keyword: expects a string
(upper-case "") => ""
(lower-case "") => ""
(subs "hello" (/ 4 2)) => "llo"
(replace {1 :one} [1 2]) => [:one 2]
(replace {:a nil} [:a :b]) => [nil :b]
(replace {} nil) => []
