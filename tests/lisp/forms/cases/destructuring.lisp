; patterns in let, fn, for and loop
(let [[a b] [1 2]] [b a]) => [2 1]
(let [[a [b c]] [1 [2 3]]] (+ a b c)) => 6
(let [[a] [1 2 3]] a) => 1
(let [[_ b _] [1 2 3]] b) => 2
(let [[a & more] [1 2 3]] [a more]) => [1 [2 3]]
(let [[a & more] [1]] more) => nil
(let [[a b & more] []] [a b more]) => [nil nil nil]
(let [[a & [b c]] [1 2]] [a b c]) => [1 2 nil]
(let [[a :as all] [1 2]] [a all]) => [1 [1 2]]
(let [[a & r :as all] [1 2]] [a r all]) => [1 [2] [1 2]]
(let [[a b] nil] [a b]) => [nil nil]
(let [{:keys [a b]} {:a 1 :b 2}] [a b]) => [1 2]
(let [{:keys [a]} {"a" 1}] a) => 1
(let [{:keys [:a]} {:a 1}] a) => 1
(let [{:keys [a]} nil] a) => nil
(let [{:keys [a]} {}] a) => nil
(let [{:keys [a] :or {a 5}} {}] a) => 5
(let [{:keys [a] :or {a 5}} {:a nil}] a) => nil
(let [{:keys [a] :or {a "text"}} {}] a) => "text"
(let [{:keys [a b] :or {b (* 2 a)}} {:a 4}] b) => 8
(let [{:keys [a] :as whole} {:a 1 :b 2}] (count whole)) => 2
(let [{:strs [a]} {"a" 1}] a) => 1
(let [{n :name} {:name "Ada"}] n) => "Ada"
(let [{n :name :or {n "?"}} {}] n) => "?"
(let [{n "name"} {"name" "Ada"}] n) => "Ada"
(let [{[x y] :at} {:at [1 2]}] y) => 2
(let [{{:keys [deep]} :in} {:in {:deep 3}}] deep) => 3
((fn [{:keys [a]} [b]] [a b]) {:a 1} [2]) => [1 2]
((fn [[k v]] {k v}) [:a 1]) => {:a 1}
(map (fn [[k v]] [v k]) {:a 1}) => [[1 :a]]
(for [{:keys [a]} [{:a 1} {:a 2}]] a) => [1 2]
(loop [[x & more] [1 2 3] sum 0] (if x (recur more (+ sum x)) sum)) => 6
(let [[a b] [1]] [a b]) => [1 nil]
(let [[a] 5] a) !! eval_error 1:7 a vector pattern needs a vector, got an integer
(let [{:keys [a]} 5] a) !! eval_error 1:19 a map pattern needs a map, got an integer
(let [{:keys a} {}] a) !! analysis_error 1:14 :keys needs a vector of names
(let [{:nope [a]} {}] a) !! analysis_error 1:8 unsupported pattern :nope
(let [{a b} {}] a) !! analysis_error 1:10 unsupported pattern
(let [[a &] [1]] a) !! analysis_error 1:10 & must be followed by exactly one name
(let [{:keys [a] :or {z 1}} {}] a) !! analysis_error 1:7 :or gives a default for z, which is not bound
(let [{:keys [a] :or 5} {}] a) !! analysis_error 1:22 :or needs a map of defaults
(let [[a [b]] [1]] [a b]) => [1 nil]
(let [[a b] "xy"] [b a]) => ["y" "x"]
((fn [[a b]] b) [1]) => nil
(let [[a] {:k 1}] a) !! eval_error 1:7 a vector pattern needs a vector, got a map
(require '[clojure.string :as s]) (s/join "," [1 2]) => "1,2"
(ns foo (:require [clojure.set :as cs] [clojure.string :as s])) (s/upper-case (str (count (cs/union #{1} #{2})))) => "2"
(do (require '[clojure.string :as s]) (map s/trim [" a "])) => ["a"]
(:a "x") => nil
(:a "x" 2) => 2
(let [{:keys [a/b]} {:a/b 1}] b) !! analysis_error 1:15 a/b cannot be bound
(let [{:a/keys [b]} {:a/b 1}] b) !! analysis_error 1:8 unsupported pattern :a/keys
((fn [& {:keys [a]}] a) :a 1) !! analysis_error 1:9 a map cannot follow &
