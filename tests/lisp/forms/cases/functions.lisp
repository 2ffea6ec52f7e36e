; functions and loops
((fn [x] (+ x 1)) 5) => 6
((fn [] 1 2)) => 2
((fn fact [n] (if (< n 2) 1 (* n (fact (dec n))))) 5) => 120
((fn [a & more] [a more]) 1 2 3) => [1 [2 3]]
((fn [a & more] more) 1) => nil
((fn ([] 0) ([x] x) ([x & more] (count more))) 1 2 3) => 2
(map (fn [f] (f 10)) [inc dec (fn [x] (* x x)) :a {10 :ten} #{10}]) !! eval_error 1:14 cannot look up :a in an integer
(map (fn [f] (f 10)) [inc dec (fn [x] (* x x)) {10 :ten} #{10}]) => [11 9 100 :ten 10]
(map (fn [g] (g)) (map (fn [x] (fn [] x)) [1 2 3])) => [1 2 3]
((fn* [x] x) 1) => 1
((fn* [] 2)) => 2
(map (fn* [x] (inc x)) [1]) => [2]
(#(+ %1 %2) 3 4) => 7
(map #(* % %) [1 2 3]) => [1 4 9]
(#(apply + %&) 1 2 3) => 6
(#(42)) => 42
(map #(%) [1 2]) => [1 2]
(map #({:v %}) [1]) => [{:v 1}]
((fn [x] (#(+ x %) 1)) 5) => 6
(map #(map (fn [y] (* % y)) [1 2]) [1 2]) => [[1 2] [2 4]]
(defn double [x] (* 2 x)) (map double [1 2]) => [2 4]
(defn f "doc" {:added 1} [x] x) (f 1) => 1
(defn f ([x] (f x 10)) ([x y] (+ x y))) [(f 1) (f 1 2)] => [11 3]
(defn a [] (b)) (defn b [] 7) (a) => 7
(defn sum [n acc] (if (zero? n) acc (recur (dec n) (+ acc n)))) (sum 1000 0) => 500500
(defn even [n] (if (= n 0) true (odd (dec n)))) (defn odd [n] (if (= n 0) false (even (dec n)))) (even 20) => true
(defn- f [] 1) (f) => 1
(defn- f [x] x) (f 2) => 2
(defn- f [& xs] xs) (f 1) => [1]
(loop [i 0] (if (< i 5) (recur (inc i)) i)) => 5
(loop [i 0 acc []] (if (= i 3) acc (recur (inc i) (conj acc i)))) => [0 1 2]
(loop [a 1 b 2 n 0] (if (= n 3) [a b] (recur b a (inc n)))) => [2 1]
(loop [i 0 fs []] (if (< i 3) (recur (inc i) (conj fs (fn [] i))) (map (fn [f] (f)) fs))) => [0 1 2]
(loop [i 0 fs []] (if (< i 2) (let [j (* 10 i)] (recur (inc i) (conj fs #(+ j %)))) (map #(% 1) fs))) => [1 11]
(loop [x 1] x) => 1
(loop [i 0 n 0] (if (< i 3) (recur (inc i) (+ n (loop [j 0] (if (< j 4) (recur (inc j)) j)))) n)) => 12
(loop [x 10] (when (> x 1) (recur (- x 2)))) => nil
(loop [x 10] (cond (> x 5) (recur (- x 1)) (> x 3) (recur (- x 2)) :else x)) => 3
(loop [xs [1 2 3] n 0] (if-let [x (first xs)] (recur (rest xs) (+ n x)) n)) => 6
(loop [x 3] (and (> x 0) (recur (dec x)))) => false
(map (fn [n] (loop [i 0] (if (< i n) (recur (inc i)) i))) [1 2]) => [1 2]
((fn [n] (if (> n 0) (recur (dec n)) :done)) 1000) => :done
((fn [n & more] (if (> n 0) (recur (dec n) more) more)) 3 :x) => [:x]
(loop [] (if (> 1 0) 5 (recur))) => 5
(fn) !! analysis_error 1:1 a function needs parameters
(fn x) !! analysis_error 1:1 a function needs parameters
(defn f ()) !! analysis_error 1:9 a function needs a vector of parameters
(defn f) !! analysis_error 1:1 defn needs a name, parameters and a body
(fn ([x] 1) ([y] 2)) !! analysis_error 1:1 two bodies of a function
(fn [a & b c] a) !! analysis_error 1:8 & must be followed by exactly one name
#(map #(inc %) %) !! analysis_error 1:7 #(…) inside #(…)
(inc %) !! analysis_error 1:6 % stands for an argument inside #(…) only
#(+ %0) !! analysis_error 1:5 %0 is not an argument
#(+ %99) !! analysis_error 1:5 %99 is not an argument
(recur 1) !! analysis_error 1:1 recur must be the last thing
(loop [x 1] (+ 1 (recur x))) !! analysis_error 1:18 recur must be the last thing
(loop [x 1] (recur)) !! analysis_error 1:13 recur needs 1 values here, got 0
(loop [x] 1) !! analysis_error 1:7 bindings need pairs
((fn [x] x)) !! eval_error 1:1 fn expects 1 argument, got 0
(let [f (fn [x] x)] (f 1 2)) !! eval_error 1:21 f expects 1 argument, got 2
(defn f ([x] 1) ([x y] 2)) (f 1 2 3) !! eval_error 1:28 f expects 1 to 2 arguments, got 3
(map (fn [a b] a) [1]) !! eval_error 1:1 fn expects 2 arguments, got 1
(42 1) !! eval_error 1:1 not callable: an integer is not a function
([1 2] 0) !! eval_error 1:1 not callable: a vector is not a function
(:a) !! eval_error 1:1 :a expects 1 to 2 arguments, got 0
(inc) !! eval_error 1:1 inc expects 1 argument, got 0
