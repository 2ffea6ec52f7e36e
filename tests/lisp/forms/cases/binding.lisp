; let, def, and the forms that bind one value and test it
(let [x 1] x) => 1
(let [x 1 y (+ x 1) x (* y 10)] [x y]) => [20 2]
(let [x 1] (inc x) (dec x)) => 0
(let [] 5) => 5
(let [x 1] [(let [x 2] x) x]) => [2 1]
(let [count 3] count) => 3
(let [if 5] (if true 1 2)) => 1
(let [when 5] when) => 5
(let [x nil y x] y) => nil
(let [f (fn [a b] (- a b))] (f 5 3)) => 2
(let* [x 1] x) => 1
(let* [x 1 y x] [x y]) => [1 1]
(let* [[a b] [1 2]] b) => 2
(def x 5) (* x 2) => 10
(def x "documented" 5) x => 5
(do (def a 1) (def a (+ a 1)) a) => 2
(def inc 5) inc => 5
(defonce x 1) x => 1
(#(def x 4)) x => 4
(map #(def x %) [1 2]) x => 2
(defonce x 1) (+ x x) => 2
(defonce y 3) [y] => [3]
(if-let [x 1] (inc x) :none) => 2
(if-let [x nil] x :none) => :none
(if-let [x false] x) => nil
(if-let [x 0] :zero :none) => :zero
(if-let [[a b] [1 2]] (+ a b) :none) => 3
(if-let [x nil] x (let [x 3] x)) => 3
(if-some [x false] [x] :none) => [false]
(if-some [x nil] x :none) => :none
(if-some [x 1] (inc x)) => 2
(when-let [x 1] :a (inc x)) => 2
(when-let [x nil] (throw "never")) => nil
(when-let [{:keys [a]} {:a 5}] a) => 5
(when-some [x false] :yes) => :yes
(when-some [x nil] :yes) => nil
(when-some [x 1] x (+ x 1)) => 2
(let [x] x) !! analysis_error 1:6 bindings need pairs
(let [x 1]) !! analysis_error 1:1 let needs a body
(let x 1) !! analysis_error 1:1 let needs a vector of bindings
(let [5 1] 2) !! analysis_error 1:7 unsupported pattern
(let [ctx/x 1] 2) !! analysis_error 1:7 ctx/x cannot be bound
(if-let [x 1 y 2] x) !! analysis_error 1:9 if-let binds exactly one value
(when-let [x] x) !! analysis_error 1:11 when-let binds exactly one value
(if-let [x 1]) !! analysis_error 1:1 if-let needs a binding
(when-some [x 1]) !! analysis_error 1:1 when-some needs a binding and a body
(def) !! analysis_error 1:1 def needs a name
(def 5 1) !! analysis_error 1:6 expected a name
(def x 1 2) !! analysis_error 1:1 def needs a name and one value
(fn [] later) ((fn [] later)) (def later 1) !! eval_error 1:23 later is used before it is defined
(let [k 1 s 2 b 3 o 4 cells 5] [k s b o cells :p "q" [6] {:r 7}]) => [1 2 3 4 5 :p "q" [6] {:r 7}]
(assoc (dissoc (into {} (filter (fn [[k v]] true) {:b 5 :c 6})) :z) :a 1 :b 2) => {:a 1 :b 2 :c 6}
